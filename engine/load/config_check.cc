#include "engine/load/config_check.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "models/registry.h"

namespace millrace {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 28;
constexpr int64_t kMaxHeadDim = 1024;

struct Bound {
  const char* name;
  int64_t value;
  int64_t limit;
};

std::string join_architectures() {
  std::string text;
  for (const std::string_view name : supported_architectures()) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

Status check_rope(const RopeConfig& rope, const std::string& source, int64_t head_dim) {
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(source + ": " + what + ".");
  };
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    return error("the rotary dimension is " + std::to_string(rope.rotary_dim) +
                 "; it must be even and between 2 and the head size " + std::to_string(head_dim));
  }
  if (!(rope.theta > 1.0) || !std::isfinite(rope.theta)) {
    return error("the rotary base is " + std::to_string(rope.theta) + "; it must be above 1");
  }
  if (!(rope.factor >= 1.0) || rope.factor > 65536.0) {
    return error("the rope scaling factor is " + std::to_string(rope.factor) +
                 "; it must be between 1 and 65536");
  }
  if (rope.scaling != RopeScaling::none && rope.original_max_positions <= 0) {
    return error("rope scaling needs a positive original_max_position_embeddings");
  }
  if (rope.scaling == RopeScaling::llama3 &&
      !(rope.low_freq_factor > 0.0 && rope.high_freq_factor > rope.low_freq_factor)) {
    return error("llama3 rope scaling needs 0 < low_freq_factor < high_freq_factor");
  }
  if (rope.scaling == RopeScaling::longrope) {
    const auto half = static_cast<size_t>(rope.rotary_dim / 2);
    if (rope.short_factor.size() != half || rope.long_factor.size() != half) {
      return error("longrope scaling needs " + std::to_string(half) +
                   " short and long factors, but " + std::to_string(rope.short_factor.size()) +
                   " and " + std::to_string(rope.long_factor.size()) + " are given");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status check_config(const ModelConfig& c, const std::string& source, int64_t num_tensors) {
  if (!is_supported_architecture(c.architecture)) {
    return absl::InvalidArgumentError(source + ": architecture \"" + c.architecture +
                                      "\" is not supported; " + join_architectures() + " are.");
  }
  const Bound bounds[] = {
      {"vocabulary size", c.vocab, kMaxVocab},
      {"hidden size", c.hidden, kMaxWidth},
      {"inner (feed-forward) size", c.ffn, kMaxWidth},
      {"number of layers", c.layers, std::min(kMaxLayers, num_tensors)},
      {"number of attention heads", c.heads, kMaxWidth},
      {"number of key/value heads", c.kv_heads, c.heads},
      {"head size", c.head_dim, kMaxHeadDim},
      {"number of positions", c.max_positions, kMaxPositions},
  };
  for (const Bound& b : bounds) {
    if (b.value < 1 || b.value > b.limit) {
      return absl::InvalidArgumentError(source + ": the " + b.name + " is " +
                                        std::to_string(b.value) + "; it must be between 1 and " +
                                        std::to_string(b.limit) + ".");
    }
  }
  if (c.heads % c.kv_heads != 0 || c.heads * c.head_dim > kMaxWidth) {
    return absl::InvalidArgumentError(
        source + ": " + std::to_string(c.heads) + " attention heads of size " +
        std::to_string(c.head_dim) + " over " + std::to_string(c.kv_heads) +
        " key/value heads cannot be: the first must be a multiple of the last, and their total " +
        "width at most " + std::to_string(kMaxWidth) + ".");
  }
  if (!(c.rms_eps >= 0.0f) || !(c.rms_eps < 1.0f)) {
    return absl::InvalidArgumentError(source + ": the norm's epsilon is " +
                                      std::to_string(c.rms_eps) + "; it must be in [0, 1).");
  }
  for (const int32_t token : c.eos_tokens) {
    if (token < 0 || token >= c.vocab) {
      return absl::InvalidArgumentError(source + ": end-of-text id " + std::to_string(token) +
                                        " is outside the vocabulary of " + std::to_string(c.vocab) +
                                        ".");
    }
  }
  return check_rope(c.rope, source, c.head_dim);
}

int64_t scaled_max_positions(const RopeConfig& rope, int64_t declared) {
  const auto scaled = [&](int64_t positions) {
    return static_cast<int64_t>(
        std::clamp(rope.factor * static_cast<double>(positions), 0.0, 9e15));
  };
  switch (rope.scaling) {
    case RopeScaling::linear:
    case RopeScaling::dynamic_ntk:
    case RopeScaling::yarn: return std::max(declared, scaled(rope.original_max_positions));
    case RopeScaling::none:
    case RopeScaling::llama3:
    case RopeScaling::longrope: break;
  }
  return declared;
}

}  // namespace millrace
