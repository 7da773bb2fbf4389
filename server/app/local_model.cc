#include "server/app/local_model.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>

#include "engine/exec/cpu_executor.h"
#include "engine/exec/kv_cache.h"
#include "models/registry.h"

namespace millrace::app {
namespace {

// Without a flag the KV pool gets room for this much context of every sequence that may run at
// once, but no more than this share of the memory that is free.
constexpr int64_t kDefaultContextPerSequence = 2048;
constexpr double kDefaultMemoryShare = 0.4;

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    if (fields >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

StatusOr<WeightType> weight_type(const std::string& dtype, const std::string& quantization) {
  if (quantization != "none" && dtype != "auto")
    return absl::InvalidArgumentError("--quantization " + quantization + " and --dtype " + dtype +
                                      " exclude each other");
  if (quantization == "w8a8") return WeightType::w8a8;
  if (quantization == "int4") return WeightType::int4;
  if (quantization != "none")
    return absl::InvalidArgumentError("--quantization is '" + quantization +
                                      "', it must be none, w8a8 or int4");
  if (dtype == "auto") return WeightType::automatic;
  if (dtype == "float32") return WeightType::float32;
  if (dtype == "bfloat16") return WeightType::bfloat16;
  return absl::InvalidArgumentError("--dtype is '" + dtype +
                                    "', it must be auto, bfloat16 or float32");
}

StatusOr<DType> kv_dtype(const std::string& dtype) {
  if (dtype == "auto" || dtype == "bfloat16") return DType::bf16;
  if (dtype == "float32") return DType::f32;
  return absl::InvalidArgumentError("--kv-cache-dtype is '" + dtype +
                                    "', it must be auto, bfloat16 or float32");
}

StatusOr<CpuLevel> cpu_level(const std::string& name) {
  const CpuLevel best = best_cpu_level();
  if (name.empty()) return best;
  const std::optional<CpuLevel> level = parse_cpu_level(name);
  if (!level)
    return absl::InvalidArgumentError("--cpu-level is '" + name +
                                      "', it must be reference, avx2 or avx512");
  if (*level > best)
    return absl::InvalidArgumentError("--cpu-level " + name + ": this CPU offers at most " +
                                      cpu_level_name(best));
  return *level;
}

StatusOr<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    return absl::NotFoundError("the chat template " + path + " cannot be read");
  return text.str();
}

StatusOr<int64_t> model_length(const LocalModelOptions& o, const ModelConfig& config) {
  if (o.max_model_len == 0) return config.max_positions;
  if (o.max_model_len > config.max_positions)
    return absl::InvalidArgumentError("--max-model-len is " + std::to_string(o.max_model_len) +
                                      ", the checkpoint was made for at most " +
                                      std::to_string(config.max_positions));
  return o.max_model_len;
}

// Everything that follows from the options and the headers, before memory is spent.
struct Resolved {
  WeightType weights = WeightType::automatic;
  int64_t max_model_len = 0;
  CpuExecutorOptions executor;
  MemoryPlan plan;
};

StatusOr<Resolved> resolve(const LocalModelOptions& o, const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  Resolved r;
  MR_ASSIGN_OR_RETURN(r.weights, weight_type(o.dtype, o.quantization));
  MR_ASSIGN_OR_RETURN(r.max_model_len, model_length(o, config));
  MR_ASSIGN_OR_RETURN(r.executor.level, cpu_level(o.cpu_level));
  MR_ASSIGN_OR_RETURN(r.executor.kv.dtype, kv_dtype(o.kv_cache_dtype));
  if (o.block_size < 16 || o.block_size % 16 != 0)
    return absl::InvalidArgumentError("--block-size is " + std::to_string(o.block_size) +
                                      ", it must be a multiple of 16");
  r.executor.threads = o.threads > 0 ? o.threads : available_cpus();
  r.executor.kv.block_size = o.block_size;
  r.executor.kv.max_num_seqs = o.max_num_seqs;
  r.executor.kv.max_num_batched_tokens = std::max(o.max_num_batched_tokens, o.max_num_seqs);
  r.executor.kv.max_model_len = r.max_model_len;

  MemoryPlan& plan = r.plan;
  MR_ASSIGN_OR_RETURN(plan.weight_bytes, planned_weight_bytes(checkpoint, {}, r.weights));
  plan.available_bytes = static_cast<uint64_t>(available_memory());
  plan.max_model_len = r.max_model_len;
  plan.block_size = o.block_size;
  int64_t block_bytes = 0;
  for (const KvGroupPlan& g : plan_kv_groups(config, r.executor.kv)) block_bytes += g.block_bytes;
  plan.kv_bytes_per_token = static_cast<uint64_t>(block_bytes / o.block_size);
  int64_t memory = o.kv_cache_memory_bytes;
  if (memory == 0) {
    const int64_t context = std::min(r.max_model_len, kDefaultContextPerSequence);
    const int64_t blocks = std::max(o.max_num_seqs * ((context + o.block_size - 1) / o.block_size),
                                    (r.max_model_len + o.block_size - 1) / o.block_size);
    memory = std::min(
        blocks * block_bytes,
        static_cast<int64_t>(kDefaultMemoryShare * static_cast<double>(plan.available_bytes)));
  }
  r.executor.kv.memory_bytes = memory;
  plan.kv_blocks = INT64_MAX;
  for (const KvGroupPlan& g : plan_kv_groups(config, r.executor.kv)) {
    plan.kv_bytes += static_cast<uint64_t>(g.num_blocks * g.block_bytes);
    if (g.window == 0 || plan.kv_blocks == INT64_MAX) plan.kv_blocks = g.num_blocks;
  }
  return r;
}

// Rows of the logits that stand for no token: holes of the vocabulary and padding beyond it.
std::vector<Token> invalid_tokens(const Tokenizer& tokenizer, int64_t vocab) {
  std::vector<Token> invalid;
  for (const Token hole : tokenizer.holes())
    if (hole < vocab) invalid.push_back(hole);
  for (int64_t t = tokenizer.size(); t < vocab; ++t) invalid.push_back(static_cast<Token>(t));
  return invalid;
}

std::vector<Token> end_tokens(const ModelConfig& config, const Tokenizer& tokenizer) {
  std::vector<Token> ends = config.eos_tokens;
  for (const Token t : tokenizer.end_tokens()) ends.push_back(t);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

// Changes when the weights or the arithmetic may have.
std::string fingerprint(const LocalModelOptions& o, const Checkpoint& checkpoint, CpuLevel level) {
  struct stat info = {};
  stat(checkpoint.path().c_str(), &info);
  const std::string all = checkpoint.path() + '/' + std::to_string(info.st_size) + '/' +
                          std::to_string(info.st_mtime) + '/' + o.dtype + '/' + o.quantization +
                          '/' + o.kv_cache_dtype + '/' + cpu_level_name(level);
  char text[32];
  std::snprintf(text, sizeof(text), "fp_%012zx", std::hash<std::string>{}(all)&0xffffffffffff);
  return text;
}

}  // namespace

void add_local_model_options(CLI::App& app, LocalModelOptions& o) {
  app.add_option("MODEL,--model", o.model,
                 "A GGUF file, or a folder with safetensors and config.json.");
  app.add_option("--served-model-name", o.served_model_names,
                 "Name that requests use; may be repeated. The first is the one answers carry.");
  app.add_option("--max-model-len", o.max_model_len,
                 "Tokens of prompt and answer together; auto is what the checkpoint was made for.")
      ->transform(CLI::Transformer(std::map<std::string, std::string>{{"auto", "0"}}))
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->default_str("auto");
  app.add_option("--max-num-seqs", o.max_num_seqs, "Sequences that run at once.")
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-num-batched-tokens", o.max_num_batched_tokens,
                 "Tokens of one step; a longer prompt is computed in chunks.")
      ->check(CLI::Range(1, 16'384));
  app.add_option(
         "--itl-target-ms", o.itl_target_ms,
         "Time a step may take while answers stream: prompts are computed in chunks that fit. "
         "auto is 50 ms, or 2.5 times a step without prompts if that is longer.")
      ->transform(CLI::Transformer(std::map<std::string, std::string>{{"auto", "0"}}))
      ->check(CLI::Range(0.0, 60'000.0))
      ->default_str("auto");
  app.add_option("--block-size", o.block_size, "Tokens of one KV block; a multiple of 16.")
      ->check(CLI::Range(16, 1024));
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", o.enable_prefix_caching,
               "Reuse the KV blocks of equal prompt beginnings.")
      ->default_str("true");
  app.add_option("--kv-cache-memory-bytes", o.kv_cache_memory_bytes,
                 "Memory of the KV cache; 0 chooses from the free memory.")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50));
  app.add_option("--dtype", o.dtype,
                 "Weights: auto keeps the precision class of the file; float32 is the reference.")
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}));
  app.add_option("--quantization", o.quantization,
                 "Quantise the decoder layers while loading: w8a8 (int8 weights per channel, int8 "
                 "activations per token) or int4 (groups of 32).")
      ->check(CLI::IsMember({"none", "w8a8", "int4"}));
  app.add_option("--kv-cache-dtype", o.kv_cache_dtype, "Keys and values; auto is bfloat16.")
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}));
  app.add_option("--cpu-level", o.cpu_level, "Kernels to use; empty takes the best this CPU has.")
      ->check(CLI::IsMember({"", "reference", "avx2", "avx512"}));
  app.add_option("--threads", o.threads, "Compute threads; 0 takes the CPUs this process may use.")
      ->check(CLI::Range(0, 1024));
  app.add_option("--chat-template", o.chat_template_file,
                 "File with a Jinja template that replaces the checkpoint's.");
  app.add_option("--max-num-queued-reqs", o.max_num_queued_requests,
                 "Requests that may wait; one more is answered 429.")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_option("--max-num-queued-tokens", o.max_num_queued_tokens,
                 "Prompt tokens that may wait; more are answered 429.")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_flag("--trust-request-chat-template", o.allow_request_chat_template,
               "Allow requests to bring their own chat template.")
      ->default_str("false");
  app.add_option("--max-logprobs", o.limits.max_logprobs, "Most alternatives per token.")
      ->check(CLI::Range(0, kMaxTopLogprobs));
  app.add_option("--max-body-bytes", o.limits.max_body_bytes, "Largest request body.")
      ->check(CLI::Range(size_t{1024}, size_t{1} << 30));
}

struct LocalModel::Impl {
  LocalModelOptions options;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<GenerationContext> context;
  WeightStore store;
  std::unique_ptr<Model> model;
  Resolved resolved;
  std::vector<Token> eos_tokens;
};

LocalModel::LocalModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalModel::~LocalModel() = default;

namespace {

ContextOptions context_options(const LocalModelOptions& o, const Checkpoint& checkpoint,
                               const Resolved& r, const std::vector<Token>& eos_tokens) {
  ContextOptions c;
  c.model_names = o.served_model_names;
  if (c.model_names.empty()) c.model_names.push_back(checkpoint.model_name());
  c.root = checkpoint.path();
  c.created = static_cast<int64_t>(std::time(nullptr));
  c.system_fingerprint = fingerprint(o, checkpoint, r.executor.level);
  c.max_model_len = r.max_model_len;
  c.max_request_tokens = r.plan.tokens_in_pool();
  c.vocab = checkpoint.config().vocab;
  c.eos_tokens = eos_tokens;
  c.generation_config = checkpoint.generation_config();
  c.special_token_texts = checkpoint.special_token_texts();
  c.allow_request_chat_template = o.allow_request_chat_template;
  c.limits = o.limits;
  return c;
}

}  // namespace

StatusOr<std::unique_ptr<LocalModel>> LocalModel::load(const LocalModelOptions& options,
                                                       const LoadProgress& progress) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  MR_ASSIGN_OR_RETURN(impl->checkpoint, Checkpoint::open(options.model));
  Checkpoint& checkpoint = *impl->checkpoint;
  MR_ASSIGN_OR_RETURN(impl->resolved, resolve(options, checkpoint));
  Resolved& r = impl->resolved;
  MR_ASSIGN_OR_RETURN(impl->tokenizer, checkpoint.load_tokenizer());
  impl->eos_tokens = end_tokens(checkpoint.config(), *impl->tokenizer);
  r.executor.invalid_tokens = invalid_tokens(*impl->tokenizer, checkpoint.config().vocab);

  // A template that does not compile leaves completions working; chat answers with the reason.
  Status template_error = absl::InvalidArgumentError(
      "the model has no chat template; give one with --chat-template, or use /v1/completions");
  std::string source = checkpoint.chat_template();
  if (!options.chat_template_file.empty()) {
    MR_ASSIGN_OR_RETURN(source, read_file(options.chat_template_file));
  }
  if (!source.empty()) {
    auto compiled = ChatTemplate::compile(std::move(source));
    if (compiled.ok())
      impl->chat_template = *std::move(compiled);
    else
      template_error = compiled.status();
  }
  MR_ASSIGN_OR_RETURN(
      impl->context,
      GenerationContext::create(context_options(options, checkpoint, r, impl->eos_tokens),
                                *impl->tokenizer, impl->chat_template.get(), template_error));

  impl->model = make_model(checkpoint.config(), {}, r.max_model_len);
  MR_RETURN_IF_ERROR(checkpoint.load_weights(*impl->model, {}, r.weights, r.executor.threads,
                                             impl->store, progress));
  return std::unique_ptr<LocalModel>(new LocalModel(std::move(impl)));
}

StatusOr<std::unique_ptr<Engine>> LocalModel::start_engine(EventSink sink) {
  const LocalModelOptions& o = impl_->options;
  MR_ASSIGN_OR_RETURN(
      std::unique_ptr<Executor> executor,
      make_cpu_executor(*impl_->model, impl_->checkpoint->config(), impl_->resolved.executor));
  EngineOptions engine;
  engine.max_model_len = impl_->resolved.max_model_len;
  engine.max_num_seqs = o.max_num_seqs;
  engine.itl_target_seconds = impl_->options.itl_target_ms / 1000.0;
  engine.max_num_batched_tokens = impl_->resolved.executor.kv.max_num_batched_tokens;
  engine.max_num_queued_requests = o.max_num_queued_requests;
  engine.max_num_queued_tokens = o.max_num_queued_tokens;
  engine.enable_prefix_caching = o.enable_prefix_caching;
  engine.eos_tokens = impl_->eos_tokens;
  return std::make_unique<Engine>(std::move(engine), std::move(executor), std::move(sink));
}

const GenerationContext& LocalModel::context() const { return *impl_->context; }
const Checkpoint& LocalModel::checkpoint() const { return *impl_->checkpoint; }
const MemoryPlan& LocalModel::memory() const { return impl_->resolved.plan; }

StatusOr<MemoryPlan> plan_memory(const LocalModelOptions& options, const Checkpoint& checkpoint) {
  MR_ASSIGN_OR_RETURN(Resolved r, resolve(options, checkpoint));
  const auto model = make_model(checkpoint.config(), {}, r.max_model_len);
  MR_RETURN_IF_ERROR(bind_planned_shapes(checkpoint, *model, {}, r.weights));
  r.plan.activation_bytes =
      static_cast<uint64_t>(activation_bytes(*model, checkpoint.config(), r.executor));
  return r.plan;
}

}  // namespace millrace::app
