#include "engine/load/weight_loader.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "engine/load/dequant.h"
#include "engine/load/panel_convert.h"

namespace millrace {
namespace {

// Hands out consecutive pieces of the plan's memory.
class Cursor {
 public:
  explicit Cursor(char* memory) : at_(memory) {}
  template <class T>
  T* take(uint64_t bytes) {
    char* begin = at_;
    at_ += aligned_bytes(bytes);
    return reinterpret_cast<T*>(begin);
  }

 private:
  char* at_;
};

void fill_bias(const PlannedLinear& linear, float* out) {
  std::vector<float> whole;
  for (const PlannedPart& part : linear.parts) {
    whole.resize(static_cast<size_t>(part.bias->columns()));
    decode_floats(part.bias->type, part.bias->data, part.bias->columns(), whole.data());
    for (int64_t i = 0; i < part.rows; ++i) {
      *out++ = whole[static_cast<size_t>(part.stored_row(part.first_row + i))];
    }
  }
}

LinearWeight place_linear(const PlannedLinear& linear, Cursor& cursor) {
  LinearWeight w = linear.shape;
  const auto panels = static_cast<uint64_t>(w.num_panels());
  const auto scales = panels * static_cast<uint64_t>(panel_scale_bytes(w.format, w.k));
  w.panels = cursor.take<uint8_t>(panels * static_cast<uint64_t>(panel_bytes(w.format, w.k)));
  if (scales > 0) w.scales = cursor.take<uint16_t>(scales);
  if (linear.minima) w.minima = cursor.take<uint16_t>(scales);
  if (linear.bias) {
    float* bias = cursor.take<float>(static_cast<uint64_t>(w.n) * sizeof(float));
    fill_bias(linear, bias);
    w.bias = bias;
  }
  return w;
}

// Panels of all linears in the order of the plan, taken by the threads a few at a time.
class Conversion {
 public:
  Conversion(const WeightPlan& plan, const LoadProgress& progress)
      : plan_(plan), progress_(progress) {
    for (const PlannedLinear& linear : plan.linears) {
      first_panel_.push_back(total_);
      total_ += linear.shape.num_panels();
    }
  }

  void run(int threads) {
    std::vector<std::jthread> helpers;
    for (int t = 1; t < threads; ++t) helpers.emplace_back([this] { work(false); });
    work(true);
  }

 private:
  static constexpr int64_t kPanelsAtOnce = 4;

  void work(bool reports) {
    PanelConverter converter;
    for (;;) {
      const int64_t begin = next_.fetch_add(kPanelsAtOnce, std::memory_order_relaxed);
      if (begin >= total_) return;
      const int64_t end = std::min(total_, begin + kPanelsAtOnce);
      uint64_t bytes = 0;
      for (int64_t i = begin; i < end; ++i) bytes += convert(converter, i);
      const uint64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      if (reports && progress_) progress_(std::min(done, plan_.bytes), plan_.bytes);
    }
  }

  uint64_t convert(PanelConverter& converter, int64_t panel) const {
    const auto after = std::upper_bound(first_panel_.begin(), first_panel_.end(), panel);
    const auto i = static_cast<size_t>(after - first_panel_.begin() - 1);
    const PlannedLinear& linear = plan_.linears[i];
    converter.convert(linear, *linear.field, panel - first_panel_[i]);
    return planned_bytes(linear) / static_cast<uint64_t>(linear.shape.num_panels());
  }

  const WeightPlan& plan_;
  const LoadProgress& progress_;
  std::vector<int64_t> first_panel_;
  int64_t total_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<uint64_t> done_{0};
};

}  // namespace

void place_weights(const WeightPlan& plan, char* memory) {
  Cursor cursor(memory);
  for (const PlannedVector& vector : plan.vectors) {
    const int64_t size = vector.tensor->columns();
    float* values = cursor.take<float>(static_cast<uint64_t>(size) * sizeof(float));
    decode_floats(vector.tensor->type, vector.tensor->data, size, values);
    *vector.field = values;
  }
  for (const PlannedLinear& linear : plan.linears) *linear.field = place_linear(linear, cursor);
  for (const PlannedShare& share : plan.shares) *share.field = *share.with;
}

Status load_planned_weights(const WeightPlan& plan, int threads, WeightStore& store,
                            const LoadProgress& progress) {
  char* memory = static_cast<char*>(store.allocate(plan.bytes));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError("The weights need " + std::to_string(plan.bytes) +
                                        " bytes of memory, which the system does not have.");
  }
  place_weights(plan, memory);
  Conversion(plan, progress).run(std::max(1, threads));
  if (progress) progress(plan.bytes, plan.bytes);
  return absl::OkStatus();
}

}  // namespace millrace
