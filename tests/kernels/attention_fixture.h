// A paged cache with known contents and the attention over it in double precision, written
// independently of the kernels.
#pragma once

#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/context_fixture.h"

namespace millrace {

struct AttentionCase {
  DType kv = DType::bf16;
  int head_dim = 64;
  int heads = 9;
  int kv_heads = 3;
  int block_size = 16;
  int window = 0;
  std::vector<int> lengths;     // kv_len of each sequence
  std::vector<int> new_tokens;  // q_len of each sequence
  uint16_t unused = 0;          // bf16 bits that fill every byte nobody wrote
};

class AttentionProblem {
 public:
  explicit AttentionProblem(const AttentionCase& c);

  const AttentionCase& shape() const { return c_; }
  int64_t rows() const { return rows_; }
  int64_t row_size() const { return int64_t{c_.heads} * c_.head_dim; }
  float scale() const;
  KvLayer layer();
  const std::vector<AttentionSequence>& sequences() const { return sequences_; }
  std::vector<float>& q() { return q_; }

  std::vector<float> run(const Ctx& c, const std::vector<AttentionSequence>& sequences);
  std::vector<float> run(const Ctx& c) { return run(c, sequences_); }
  std::vector<double> expected() const;  // like run()

 private:
  void write(int64_t sequence, int position);
  float round(float x) const;

  AttentionCase c_;
  int64_t rows_ = 0;
  std::vector<char> cache_;
  std::vector<std::vector<int32_t>> blocks_;
  std::vector<std::vector<float>> k_, v_;  // per sequence [kv_len, kv_heads, D], as stored
  std::vector<float> q_;                   // [rows, heads, D]
  std::vector<AttentionSequence> sequences_;
};

}  // namespace millrace
