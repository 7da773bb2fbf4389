#include "tests/kernels/attention_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace millrace {

AttentionProblem::AttentionProblem(const AttentionCase& c) : c_(c) {
  size_t num_blocks = 1;
  for (const int length : c.lengths) num_blocks += (length + c.block_size - 1) / c.block_size;
  const auto block_bytes = kv_layer_block_bytes(c.kv, c.block_size, c.kv_heads, c.head_dim);
  cache_.resize(num_blocks * block_bytes);
  for (size_t i = 0; i < cache_.size(); i += 2) std::memcpy(&cache_[i], &c.unused, 2);
  std::vector<int32_t> free(num_blocks);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), std::mt19937(5));

  for (size_t s = 0; s < c.lengths.size(); ++s) {
    const int length = c.lengths[s], fresh = c.new_tokens[s];
    const size_t n = static_cast<size_t>(length) * c.kv_heads * c.head_dim;
    k_.push_back(random_floats(n, static_cast<uint32_t>(100 + s)));
    v_.push_back(random_floats(n, static_cast<uint32_t>(200 + s)));
    for (float& x : k_.back()) x = round(x);
    for (float& x : v_.back()) x = round(x);
    std::vector<int32_t> blocks;
    const int first_visible = c.window > 0 ? std::max(0, length - fresh + 1 - c.window) : 0;
    for (int b = 0; b * c.block_size < length; ++b) {
      const bool visible = (b + 1) * c.block_size > first_visible;
      blocks.push_back(visible ? free.back() : -1);
      free.pop_back();
    }
    blocks_.push_back(blocks);
    for (int p = 0; p < length; ++p)
      if (blocks[p / c.block_size] >= 0) write(static_cast<int64_t>(s), p);
    rows_ += fresh;
  }
  int32_t begin = 0;
  for (size_t s = 0; s < c.lengths.size(); ++s) {
    sequences_.push_back({begin, c.new_tokens[s], c.lengths[s], blocks_[s].data()});
    begin += c.new_tokens[s];
  }
  q_ = random_floats(static_cast<size_t>(rows_ * row_size()), 7);
}

float AttentionProblem::scale() const { return 1.0f / std::sqrt(static_cast<float>(c_.head_dim)); }

float AttentionProblem::round(float x) const {
  return c_.kv == DType::bf16 ? to_float(to_bf16(x)) : x;
}

KvLayer AttentionProblem::layer() {
  return {cache_.data(), kv_layer_block_bytes(c_.kv, c_.block_size, c_.kv_heads, c_.head_dim),
          c_.kv,         c_.block_size,
          c_.kv_heads,   c_.head_dim,
          c_.window};
}

// The layout of kernels/ops.h, spelled out.
void AttentionProblem::write(int64_t sequence, int position) {
  const int64_t bs = c_.block_size, dim = c_.head_dim;
  const int64_t offset = position % bs, tile = offset / 16, lane = offset % 16;
  const int64_t block = blocks_[sequence][position / bs];
  const int64_t element_bytes = static_cast<int64_t>(dtype_bytes(c_.kv));
  char* base = cache_.data() + block * layer().block_stride;
  const auto put = [&](int64_t index, float x) {
    const bf16 rounded = to_bf16(x);
    if (c_.kv == DType::bf16)
      std::memcpy(base + index * element_bytes, &rounded, 2);
    else
      std::memcpy(base + index * element_bytes, &x, 4);
  };
  for (int64_t h = 0; h < c_.kv_heads; ++h) {
    for (int64_t d = 0; d < dim; ++d) {
      const size_t from = static_cast<size_t>((position * int64_t{c_.kv_heads} + h) * dim + d);
      const int64_t key = (h * (bs / 16) + tile) * dim * 16;
      put(key + (c_.kv == DType::bf16 ? d / 2 * 32 + lane * 2 + d % 2 : d * 16 + lane),
          k_[sequence][from]);
      const int64_t pair = c_.kv == DType::bf16 ? 2 : 1;
      put((c_.kv_heads + h) * bs * dim + (offset / pair * dim + d) * pair + offset % pair,
          v_[sequence][from]);
    }
  }
}

std::vector<float> AttentionProblem::run(const Ctx& c,
                                         const std::vector<AttentionSequence>& sequences) {
  std::vector<float> out(q_.size(), -12345.0f);
  const std::initializer_list<int64_t> shape = {rows_, c_.heads, c_.head_dim};
  attention(c, Tensor(out.data(), DType::f32, shape), Tensor(q_.data(), DType::f32, shape), layer(),
            sequences, scale());
  return out;
}

std::vector<double> AttentionProblem::expected() const {
  std::vector<double> out(q_.size());
  const int group = c_.heads / c_.kv_heads, dim = c_.head_dim;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const AttentionSequence& sequence = sequences_[s];
    for (int t = 0; t < sequence.q_len; ++t) {
      const int position = sequence.kv_len - sequence.q_len + t;
      const int first = c_.window > 0 ? std::max(0, position + 1 - c_.window) : 0;
      for (int h = 0; h < c_.heads; ++h) {
        const size_t row = static_cast<size_t>(((sequence.q_begin + t) * c_.heads + h) * dim);
        const auto at = [&](int p) {
          return static_cast<size_t>((p * c_.kv_heads + h / group) * dim);
        };
        std::vector<double> weight;
        double highest = -INFINITY, sum = 0;
        for (int p = first; p <= position; ++p) {
          double dot = 0;
          for (int d = 0; d < dim; ++d) dot += double{round(q_[row + d])} * k_[s][at(p) + d];
          weight.push_back(dot * scale());
          highest = std::max(highest, weight.back());
        }
        for (double& w : weight) sum += w = std::exp(w - highest);
        for (int p = first; p <= position; ++p)
          for (int d = 0; d < dim; ++d) out[row + d] += weight[p - first] / sum * v_[s][at(p) + d];
      }
    }
  }
  return out;
}

}  // namespace millrace
