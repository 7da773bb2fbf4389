// `millrace bench kernels MODEL`: every op in the shapes of a model, beside what the machine could
// do: bytes that must be read over the measured stream rate, or operations over the measured peak
// of the instruction, whichever takes longer. Peaks and ops are measured in the same run.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/clock.h"
#include "engine/load/load.h"
#include "kernels/ops.h"
#include "kernels/peaks.h"
#include "server/app/commands.h"

namespace millrace::app {
namespace {

// Weights and KV of one op are rotated through so much memory that each call finds them in DRAM.
constexpr int64_t kColdBytes = int64_t{192} << 20;
constexpr size_t kArenaBytes = size_t{256} << 20;

struct KernelBenchOptions {
  std::string model;
  std::vector<std::string> formats = {"bf16", "w8a8", "int8", "int4", "int4m"};
  std::vector<int64_t> rows = {1, 4, 8, 32, 64, 512};
  std::string cpu_level;
  std::string only;
  int threads = 0;
  int runs = 7;
  bool peaks_only = false;
  bool json = false;
};

struct Peaks {
  double stream = 0.0;  // bytes/s
  double f32 = 0.0, bf16 = 0.0, int8 = 0.0;
};

// What one call has to do at least.
struct Work {
  double bytes = 0.0;
  double f32 = 0.0, bf16 = 0.0, int8 = 0.0;  // operations

  double memory_seconds(const Peaks& p) const { return bytes / p.stream; }
  double arithmetic_seconds(const Peaks& p) const {
    return f32 / p.f32 + bf16 / p.bf16 + int8 / p.int8;
  }
};

struct Measurement {
  std::string op, shape;
  Work work;
  double seconds = 0.0;  // median of a call
};

// Memory of the operands, filled with values that no op finds special.
class Operands {
 public:
  float* floats(int64_t n) {
    auto* data = static_cast<float*>(bytes(n * 4));
    for (int64_t i = 0; i < n; ++i) data[i] = value_(random_);
    return data;
  }
  void* bytes(int64_t n) {
    void* memory = store_.allocate(static_cast<size_t>(n));
    if (!memory) fatal("no memory is left for the operands");
    return memory;
  }
  LinearWeight weight(WeightFormat format, bool minima, int64_t n, int64_t k) {
    LinearWeight w;
    w.format = format;
    w.n = n;
    w.k = k;
    w.panels = static_cast<uint8_t*>(bytes(w.num_panels() * panel_bytes(format, k)));
    const int64_t scales = w.num_panels() * panel_scale_bytes(format, k);
    if (scales > 0) w.scales = static_cast<uint16_t*>(bytes(scales));
    if (minima) w.minima = static_cast<uint16_t*>(bytes(scales));
    std::vector<float> source(static_cast<size_t>(kPanel * k));
    for (float& x : source) x = value_(random_);
    pack_panel(w, 0, source.data(), std::min(n, kPanel));
    for (int64_t p = 1; p < w.num_panels(); ++p) copy_panel(w, p);
    return w;
  }

 private:
  static void copy_panel(const LinearWeight& w, int64_t p) {
    const int64_t bytes = panel_bytes(w.format, w.k), scales = panel_scale_bytes(w.format, w.k);
    std::copy_n(w.panels, bytes, w.panels + p * bytes);
    if (w.scales) std::copy_n(w.scales, scales / 2, w.scales + p * scales / 2);
    if (w.minima) std::copy_n(w.minima, scales / 2, w.minima + p * scales / 2);
  }

  WeightStore store_;
  std::mt19937_64 random_{1};
  std::normal_distribution<float> value_{0.0f, 0.5f};
};

int64_t weight_bytes(const LinearWeight& w) {
  const int64_t scales = w.num_panels() * panel_scale_bytes(w.format, w.k);
  return w.num_panels() * panel_bytes(w.format, w.k) + scales + (w.minima ? scales : 0);
}

// "int4m": int4 with minima.
WeightFormat format_of(const std::string& layout) {
  return layout == "f32"    ? WeightFormat::f32
         : layout == "bf16" ? WeightFormat::bf16
         : layout == "w8a8" ? WeightFormat::int8_channel
         : layout == "int8" ? WeightFormat::int8_g32
                            : WeightFormat::int4_g32;
}

class KernelBench {
 public:
  KernelBench(const KernelBenchOptions& options, const ModelConfig& config, const Pool& pool,
              CpuLevel level)
      : o_(options), m_(config), arena_(operands_.bytes(kArenaBytes), kArenaBytes) {
    ctx_ = {Device::cpu, level, &pool, &arena_, nullptr};
  }

  void linears(const std::string& layout, const std::function<void(const Measurement&)>& report) {
    const WeightFormat format = format_of(layout);
    const bool minima = layout == "int4m";
    const int64_t q = m_.heads * m_.head_dim, kv = m_.kv_heads * m_.head_dim;
    const struct {
      const char* name;
      int64_t n, k;
    } shapes[] = {{"qkv", q + 2 * kv, m_.hidden},
                  {"o", m_.hidden, q},
                  {"gate_up", 2 * m_.ffn, m_.hidden},
                  {"down", m_.hidden, m_.ffn},
                  {"lm_head", m_.vocab, m_.hidden}};
    for (const auto& shape : shapes) {
      if (!chosen(std::string("linear ") + shape.name)) continue;
      Operands operands;
      std::vector<LinearWeight> weights{operands.weight(format, minima, shape.n, shape.k)};
      const int64_t bytes = weight_bytes(weights[0]);
      for (int64_t i = 1; i * bytes < kColdBytes; ++i)
        weights.push_back(operands.weight(format, minima, shape.n, shape.k));
      for (const int64_t rows : o_.rows) {
        Tensor x(operands.floats(rows * shape.k), DType::f32, {rows, shape.k});
        Tensor out(operands.floats(rows * shape.n), DType::f32, {rows, shape.n});
        Measurement m{std::string("linear ") + shape.name + " " + layout,
                      shape_text(rows, shape.n, shape.k),
                      {},
                      0.0};
        m.work.bytes = static_cast<double>(bytes);
        const double operations = 2.0 * static_cast<double>(rows * shape.n * shape.k);
        (format == WeightFormat::f32    ? m.work.f32
         : format == WeightFormat::bf16 ? m.work.bf16
                                        : m.work.int8) = operations;
        m.seconds = time(weights.size(), [&](size_t i) {
          linear(ctx_, out, x, weights[i], &weights[(i + 1) % weights.size()]);
        });
        report(m);
      }
    }
  }

  // Sequences of `context` tokens, each with `queries` rows of this step.
  void attentions(int sequences, int queries, int context, DType type,
                  const std::function<void(const Measurement&)>& report) {
    if (!chosen("attention")) return;
    constexpr int kBlock = 16;
    Operands operands;
    const int kv_heads = static_cast<int>(m_.kv_heads), dim = static_cast<int>(m_.head_dim);
    KvLayer kv;
    kv.block_stride = kv_layer_block_bytes(type, kBlock, kv_heads, dim);
    kv.dtype = type;
    kv.block_size = kBlock;
    kv.kv_heads = kv_heads;
    kv.head_dim = dim;
    const int per_sequence = (context + kBlock - 1) / kBlock;
    const int64_t blocks = int64_t{sequences} * per_sequence;
    const auto copies =
        static_cast<size_t>(std::max<int64_t>(1, kColdBytes / (blocks * kv.block_stride)));
    kv.data =
        static_cast<char*>(operands.bytes(static_cast<int64_t>(copies) * blocks * kv.block_stride));
    std::vector<int32_t> table(copies * static_cast<size_t>(blocks));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::vector<std::vector<AttentionSequence>> steps(copies);
    for (size_t c = 0; c < copies; ++c)
      for (int s = 0; s < sequences; ++s)
        steps[c].push_back({s * queries, queries, context,
                            table.data() + c * static_cast<size_t>(blocks) +
                                static_cast<size_t>(s) * static_cast<size_t>(per_sequence)});
    const int64_t rows = int64_t{sequences} * queries;
    Tensor q(operands.floats(rows * m_.heads * dim), DType::f32, {rows, m_.heads, m_.head_dim});
    Tensor out(operands.floats(rows * m_.heads * dim), DType::f32, {rows, m_.heads, m_.head_dim});
    Measurement m{std::string("attention ") + dtype_name(type),
                  std::to_string(sequences) + " x " + std::to_string(queries) + " of " +
                      std::to_string(context),
                  {},
                  0.0};
    m.work.bytes = static_cast<double>(blocks * kv.block_stride);
    // Each row sees half of the step's own positions on average.
    const double pairs =
        static_cast<double>(rows * m_.heads) * (context - (queries - 1) / 2.0) * dim;
    m.work.f32 = 2.0 * pairs;
    (type == DType::f32 ? m.work.f32 : m.work.bf16) += 2.0 * pairs;
    m.seconds = time(copies, [&](size_t i) { attention(ctx_, out, q, kv, steps[i], 0.125f); });
    report(m);
  }

  void elementwise(const std::function<void(const Measurement&)>& report) {
    Operands operands;
    for (const int64_t rows : o_.rows) {
      Tensor x(operands.floats(rows * m_.hidden), DType::f32, {rows, m_.hidden});
      Tensor delta(operands.floats(rows * m_.hidden), DType::f32, {rows, m_.hidden});
      Tensor out(operands.floats(rows * m_.hidden), DType::f32, {rows, m_.hidden});
      const float* weight = operands.floats(m_.hidden);
      Tensor gate_up(operands.floats(rows * 2 * m_.ffn), DType::f32, {rows, 2 * m_.ffn});
      Tensor act(operands.floats(rows * m_.ffn), DType::f32, {rows, m_.ffn});
      const auto measure = [&](const char* op, int64_t width, double bytes, auto&& call) {
        if (!chosen(op)) return;
        Measurement m{op, shape_text(rows, width), {}, 0.0};
        m.work.bytes = bytes * static_cast<double>(rows * width) * 4.0;
        m.seconds = time(1, [&](size_t) { call(); });
        report(m);
      };
      measure("add_rmsnorm", m_.hidden, 4,
              [&] { add_rmsnorm(ctx_, out, x, delta, weight, m_.rms_eps); });
      measure("silu_mul", m_.ffn, 3, [&] { silu_mul(ctx_, act, gate_up); });
    }
  }

  void sampling(const std::function<void(const Measurement&)>& report) {
    if (!chosen("sample")) return;
    Operands operands;
    for (const int64_t rows : o_.rows) {
      if (rows > 64) continue;
      // As uneven as a language model's: token of rank r is as likely as 1 / r^1.2.
      float* source = operands.floats(rows * m_.vocab);
      for (int64_t i = 0; i < rows * m_.vocab; ++i)
        source[i] = -1.2f * std::log(static_cast<float>(1 + i * 7919 % m_.vocab));
      Tensor logits(operands.floats(rows * m_.vocab), DType::f32, {rows, m_.vocab});
      std::vector<SampledToken> sampled(static_cast<size_t>(rows));
      for (const bool greedy : {true, false}) {
        std::vector<SamplingRow> settings(static_cast<size_t>(rows));
        for (SamplingRow& s : settings) {
          s.temperature = greedy ? 0.0f : 0.8f;
          s.top_p = greedy ? 1.0f : 0.95f;
        }
        Measurement m{greedy ? "sample greedy" : "sample top_p", shape_text(rows, m_.vocab), {}, 0};
        m.work.bytes = static_cast<double>(rows * m_.vocab) * 4.0;
        m.seconds = time(1, [&](size_t) {
          // Sampling overwrites its scores.
          if (!greedy) std::copy_n(source, rows * m_.vocab, logits.row<float>(0));
          sample(ctx_, sampled, logits, settings, {});
        });
        report(m);
      }
    }
  }

 private:
  bool chosen(const std::string& op) const { return op.find(o_.only) != std::string::npos; }

  static std::string shape_text(int64_t rows, int64_t n) {
    return std::to_string(rows) + " x " + std::to_string(n);
  }
  static std::string shape_text(int64_t rows, int64_t n, int64_t k) {
    return shape_text(rows, n) + " x " + std::to_string(k);
  }

  // Seconds of one call: the median over runs that each go through all copies.
  template <class Call>
  double time(size_t copies, const Call& call) const {
    std::vector<double> seconds;
    for (size_t i = 0; i < copies; ++i) call(i);
    const size_t calls = std::max<size_t>(copies, 20);
    for (int run = 0; run < o_.runs; ++run) {
      const TimePoint start = Clock::now();
      for (size_t i = 0; i < calls; ++i) call(i % copies);
      seconds.push_back(seconds_between(start, Clock::now()) / static_cast<double>(calls));
    }
    std::nth_element(seconds.begin(), seconds.begin() + o_.runs / 2, seconds.end());
    return seconds[static_cast<size_t>(o_.runs / 2)];
  }

  const KernelBenchOptions& o_;
  const ModelConfig& m_;
  Operands operands_;
  Arena arena_;
  Ctx ctx_;
};

Peaks measure_peaks(const Pool& pool, CpuLevel level) {
  return {measure_stream_read(pool, int64_t{1} << 29, 5).median,
          measure_arithmetic(pool, level, Arithmetic::f32, 9).median,
          measure_arithmetic(pool, level, Arithmetic::bf16, 9).median,
          measure_arithmetic(pool, level, Arithmetic::int8, 9).median};
}

nlohmann::ordered_json peaks_json(const Peaks& p) {
  return {{"stream_read_gb_s", p.stream / 1e9},
          {"f32_gflop_s", p.f32 / 1e9},
          {"bf16_gflop_s", p.bf16 / 1e9},
          {"int8_gop_s", p.int8 / 1e9}};
}

void print_peaks(const Peaks& p, const Pool& pool, CpuLevel level) {
  std::printf(
      "%d threads, %s; stream read %.1f GB/s; peak f32 %.0f, bf16 %.0f GFLOP/s, int8 %.0f GOP/s\n",
      pool.size(), cpu_level_name(level), p.stream / 1e9, p.f32 / 1e9, p.bf16 / 1e9, p.int8 / 1e9);
}

void print_measurement(const Measurement& m, const Peaks& p) {
  const double memory = m.work.memory_seconds(p), arithmetic = m.work.arithmetic_seconds(p);
  const double operations = m.work.f32 + m.work.bf16 + m.work.int8;
  std::printf("%-28s %-20s %10.1f %8.1f %8.0f %6.0f%% of %s\n", m.op.c_str(), m.shape.c_str(),
              m.seconds * 1e6, m.work.bytes / m.seconds / 1e9, operations / m.seconds / 1e9,
              100.0 * std::max(memory, arithmetic) / m.seconds,
              memory > arithmetic ? "memory" : "arithmetic");
  std::fflush(stdout);
}

nlohmann::ordered_json measurement_json(const Measurement& m, const Peaks& p) {
  const double memory = m.work.memory_seconds(p), arithmetic = m.work.arithmetic_seconds(p);
  return {{"op", m.op},
          {"shape", m.shape},
          {"seconds", m.seconds},
          {"bytes", m.work.bytes},
          {"operations", m.work.f32 + m.work.bf16 + m.work.int8},
          {"bound", memory > arithmetic ? "memory" : "arithmetic"},
          {"ratio", std::max(memory, arithmetic) / m.seconds}};
}

int run_kernel_bench(const KernelBenchOptions& o) {
  const Pool pool(o.threads > 0 ? o.threads : available_cpus());
  const CpuLevel level = o.cpu_level.empty() ? best_cpu_level() : *parse_cpu_level(o.cpu_level);
  if (level > best_cpu_level()) {
    std::fprintf(stderr, "millrace bench: --cpu-level %s: this CPU offers at most %s\n",
                 o.cpu_level.c_str(), cpu_level_name(best_cpu_level()));
    return 2;
  }
  const Peaks peaks = measure_peaks(pool, level);
  if (o.peaks_only) {
    if (o.json)
      std::printf("%s\n", peaks_json(peaks).dump(2).c_str());
    else
      print_peaks(peaks, pool, level);
    return 0;
  }
  const auto checkpoint = Checkpoint::open(o.model);
  if (!checkpoint.ok()) {
    std::fprintf(stderr, "millrace bench: %s\n", status_message(checkpoint.status()).c_str());
    return 1;
  }
  if (!o.json) {
    print_peaks(peaks, pool, level);
    std::printf("%-28s %-20s %10s %8s %8s %s\n", "op", "shape", "us", "GB/s", "GOP/s", "bound");
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto report = [&](const Measurement& m) {
    if (o.json)
      rows.push_back(measurement_json(m, peaks));
    else
      print_measurement(m, peaks);
  };
  KernelBench bench(o, (*checkpoint)->config(), pool, level);
  for (const std::string& format : o.formats) bench.linears(format, report);
  for (const auto& [sequences, context] :
       {std::pair{1, 256}, {1, 4096}, {8, 512}, {32, 256}, {64, 256}})
    bench.attentions(sequences, 1, context, DType::bf16, report);
  for (const int context : {512, 2048}) bench.attentions(1, 512, context, DType::bf16, report);
  bench.elementwise(report);
  bench.sampling(report);
  if (o.json) {
    nlohmann::ordered_json out = {{"threads", pool.size()},
                                  {"cpu_level", cpu_level_name(level)},
                                  {"peaks", peaks_json(peaks)},
                                  {"rows", rows}};
    std::printf("%s\n", out.dump(2).c_str());
  }
  return 0;
}

}  // namespace

void add_bench_kernels(CLI::App& bench, CommandResult& result) {
  CLI::App* kernels = bench.add_subcommand(
      "kernels", "Each op in a model's shapes beside the machine's measured limits");
  auto o = std::make_shared<KernelBenchOptions>();
  CLI::Option* model = kernels->add_option("MODEL", o->model,
                                           "A GGUF file or a folder with safetensors: its shapes");
  kernels
      ->add_option("--formats", o->formats,
                   "Weight layouts: w8a8 has a scale for each channel, int8 and int4 for each "
                   "32 inputs, int4m minima besides")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "bf16", "w8a8", "int8", "int4", "int4m"}))
      ->capture_default_str();
  kernels->add_option("--rows", o->rows, "Rows (tokens) of a step")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  kernels->add_option("--only", o->only, "Ops whose name contains this");
  kernels->add_option("--runs", o->runs, "Measured runs; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  kernels->add_option("--threads", o->threads, "Threads; 0: the CPUs this process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  kernels->add_option("--cpu-level", o->cpu_level, "Instruction-set level; default: the best here")
      ->check(CLI::IsMember({"reference", "avx2", "avx512"}));
  kernels->add_flag("--json", o->json, "Print JSON");
  CLI::Option* peaks =
      kernels->add_flag("--peaks-only", o->peaks_only, "Measure the machine's limits and end");
  kernels->callback([o, model, peaks, &result] {
    if (model->count() == 0 && peaks->count() == 0)
      throw CLI::RequiredError("MODEL (or --peaks-only)");
    result.run = [o] { return run_kernel_bench(*o); };
  });
}

}  // namespace millrace::app
