// Random weights of a model's shape. Codes come from a counter-based hash, scales are constant, so
// that activations keep a sensible size whatever the format.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/load/load.h"
#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace millrace {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class RandomBinder final : public WeightBinder {
 public:
  RandomBinder(const TensorParallel& tp, WeightFormat format, uint64_t seed, WeightStore& store)
      : tp_(tp), format_(format), state_(seed), store_(store) {}

  void push(std::string_view, int64_t) override {}
  void pop() override {}

  void vector(std::string_view, const float*& field, int64_t size) override {
    float* values = take<float>(static_cast<uint64_t>(size) * sizeof(float));
    std::fill_n(values, size, 1.0f);
    field = values;
  }

  void linear(std::initializer_list<LinearPart> parts, LinearWeight& field, int64_t k, Split split,
              bool bias) override {
    LinearWeight w;
    w.k = split == Split::rows ? k / tp_.size : k;
    for (const LinearPart& part : parts) {
      const int64_t heads = part.heads > 0 ? part.heads : part.outputs;
      const int64_t share = heads % tp_.size == 0 ? heads / tp_.size : 1;
      w.n += split == Split::columns ? share * (part.outputs / heads) : part.outputs;
    }
    w.format = has_groups(format_) && w.k % kGroup != 0 ? WeightFormat::bf16 : format_;
    const auto panels = static_cast<uint64_t>(w.num_panels());
    w.panels = take<uint8_t>(panels * static_cast<uint64_t>(panel_bytes(w.format, w.k)));
    const auto scale_bytes = panels * static_cast<uint64_t>(panel_scale_bytes(w.format, w.k));
    if (scale_bytes > 0) w.scales = take<uint16_t>(scale_bytes);
    if (w.format == WeightFormat::int4_g32) w.minima = take<uint16_t>(scale_bytes);
    fill(w);
    if (bias) {
      w.bias = take<float>(static_cast<uint64_t>(w.n) * sizeof(float));
    }
    field = w;
  }

  void share(LinearWeight& field, const LinearWeight& with) override { field = with; }

 private:
  template <class T>
  T* take(uint64_t bytes) {
    void* memory = store_.allocate(bytes);
    if (memory == nullptr) fatal("no memory for random weights");
    return static_cast<T*>(memory);
  }

  void fill(const LinearWeight& w) {
    if (w.scales != nullptr) return fill_codes(w);
    // Uniform with the standard deviation 1 / sqrt(k).
    const float range = std::sqrt(12.0f / static_cast<float>(w.k));
    std::vector<float> rows(static_cast<size_t>(kPanel * w.k));
    for (int64_t panel = 0; panel < w.num_panels(); ++panel) {
      for (float& x : rows) {
        x = range * (static_cast<float>(hash(state_++) >> 40) * 0x1p-24f - 0.5f);
      }
      pack_panel(w, panel, rows.data(), std::min(kPanel, w.n - panel * kPanel));
    }
  }

  // Uniform codes: eight of eight bits or sixteen of four from each hash.
  void fill_codes(const LinearWeight& w) {
    const int64_t bytes = w.num_panels() * panel_bytes(w.format, w.k);
    auto* words = reinterpret_cast<uint64_t*>(w.panels);
    for (int64_t i = 0; i < bytes / 8; ++i) words[i] = hash(state_++);
    const bool narrow = w.format == WeightFormat::int4_g32;
    const float levels = narrow ? 16.0f : 256.0f;
    const float scale = std::sqrt(12.0f / static_cast<float>(w.k)) / levels;
    const uint16_t minimum = float_to_f16(-7.5f * f16_to_float(float_to_f16(scale)));
    const int64_t scales = w.num_panels() * panel_scale_bytes(w.format, w.k) / 2;
    std::fill_n(w.scales, scales, float_to_f16(scale));
    if (narrow) std::fill_n(w.minima, scales, minimum);
  }

  const TensorParallel tp_;
  const WeightFormat format_;
  uint64_t state_;
  WeightStore& store_;
};

}  // namespace

void bind_random_weights(Model& model, const TensorParallel& tp, WeightFormat format, uint64_t seed,
                         WeightStore& store) {
  RandomBinder binder(tp, format, hash(seed), store);
  model.bind(binder);
}

}  // namespace millrace
