// WeightPlan: what loading will do, worked out from names and shapes alone: which stored rows go
// into which packed weight, in which format, and how many bytes that takes. Made by WeightPlanner,
// which a model's bind() fills; nothing is allocated or read before the plan is complete.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/base/status.h"
#include "engine/load/load.h"
#include "engine/load/tensor_catalog.h"
#include "models/model.h"

namespace millrace {

// Rows [first_row, first_row + rows) of one stored matrix.
struct PlannedPart {
  const StoredTensor* weight = nullptr;
  const StoredTensor* bias = nullptr;  // or null
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t interleaved_head = 0;  // head size if the file permuted each head's rows, else 0

  // Row of the file that holds row `i` of the model's matrix. Rotary halves (i, i + D/2) of ours
  // are the pairs (2i, 2i + 1) of an interleaved file.
  int64_t stored_row(int64_t i) const {
    if (interleaved_head == 0) return i;
    const int64_t half = interleaved_head / 2, in_head = i % interleaved_head;
    return i - in_head + 2 * (in_head % half) + in_head / half;
  }
};

struct PlannedLinear {
  LinearWeight* field = nullptr;
  LinearWeight shape;  // format, n and k of this rank; no memory yet
  bool minima = false;
  bool requantised = false;  // codes are made from the values and not taken over
  bool bias = false;
  int64_t first_column = 0;  // of the stored rows
  std::vector<PlannedPart> parts;
};

struct PlannedVector {
  const float** field = nullptr;
  const StoredTensor* tensor = nullptr;
};

struct PlannedShare {
  LinearWeight* field = nullptr;
  const LinearWeight* with = nullptr;
};

struct WeightPlan {
  std::vector<PlannedLinear> linears;
  std::vector<PlannedVector> vectors;
  std::vector<PlannedShare> shares;
  uint64_t bytes = 0;  // to allocate, alignment included
};

// Every piece of the plan begins at a multiple of this.
inline constexpr uint64_t kWeightAlignment = 64;
constexpr uint64_t aligned_bytes(uint64_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}
uint64_t planned_bytes(const PlannedLinear& linear);

class WeightPlanner final : public WeightBinder {
 public:
  WeightPlanner(const TensorCatalog& catalog, const TensorParallel& tp, WeightType type)
      : catalog_(catalog), tp_(tp), type_(type) {}

  void push(std::string_view prefix, int64_t index) override;
  void pop() override;
  void vector(std::string_view name, const float*& field, int64_t size) override;
  void linear(std::initializer_list<LinearPart> parts, LinearWeight& field, int64_t k, Split split,
              bool bias) override;
  void share(LinearWeight& field, const LinearWeight& with) override;

  // The plan, or the first thing that is wrong: a missing tensor, a wrong shape, a tensor of the
  // file that nothing reads.
  StatusOr<WeightPlan> finish();

 private:
  const StoredTensor* take(std::string_view name, const std::vector<int64_t>& shape);
  PlannedPart plan_part(const LinearPart& part, int64_t k, Split split, bool bias);
  void fail(const std::string& what);

  const TensorCatalog& catalog_;
  const TensorParallel tp_;
  const WeightType type_;
  WeightPlan plan_;
  std::vector<std::string> prefixes_;
  std::unordered_set<const StoredTensor*> taken_;
  bool head_shared_ = false;  // the output head is the embedding
  Status status_;
};

}  // namespace millrace
