#include "engine/load/weight_plan.h"

#include <algorithm>

#include "engine/load/dequant.h"

namespace millrace {
namespace {

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;  // 0: the rows cannot be divided
};

// This rank's rows of a part that is split by columns. Heads stay whole; with fewer heads than
// ranks each head goes to size / heads neighbouring ranks.
RowRange rank_rows(const LinearPart& part, const TensorParallel& tp) {
  const int64_t units = part.heads > 0 ? part.heads : part.outputs;
  const int64_t unit_rows = part.outputs / units;
  if (units % tp.size == 0) {
    const int64_t share = units / tp.size;
    return {tp.rank * share * unit_rows, share * unit_rows};
  }
  if (part.heads > 0 && tp.size % units == 0) {
    return {tp.rank / (tp.size / units) * unit_rows, unit_rows};
  }
  return {};
}

bool is_rotary_projection(std::string_view name) {
  return name.ends_with("self_attn.q_proj") || name.ends_with("self_attn.k_proj");
}

// The narrowest class that loses nothing of any part, or the one asked for. Integer groups must lie
// within this rank's columns; where they do not, the values become bf16.
WeightFormat choose_format(const std::vector<PlannedPart>& parts, WeightType type, bool in_layer,
                           int64_t first_column, int64_t k) {
  if (type == WeightType::float32) return WeightFormat::f32;
  if (type == WeightType::bfloat16) return WeightFormat::bf16;
  if (type == WeightType::w8a8 && in_layer) return WeightFormat::int8_channel;
  if (type == WeightType::w8a8 || type == WeightType::int4) {
    if (k % kGroup != 0) return WeightFormat::bf16;
    return in_layer ? WeightFormat::int4_g32 : WeightFormat::int8_g32;
  }
  const auto all = [&](auto&& predicate) {
    return std::all_of(parts.begin(), parts.end(),
                       [&](const PlannedPart& p) { return predicate(p.weight->type); });
  };
  if (!all(is_quantised) || k % kGroup != 0 || first_column % kGroup != 0) {
    return WeightFormat::bf16;
  }
  return all(fits_int4) ? WeightFormat::int4_g32 : WeightFormat::int8_g32;
}

// Q2_K's minima do not survive: groups of 16 are quantised anew, symmetrically.
bool keeps_minimum(StoredType type) { return has_minimum(type) && stored_group_size(type) == 32; }

}  // namespace

uint64_t planned_bytes(const PlannedLinear& linear) {
  const LinearWeight& w = linear.shape;
  const auto panels = static_cast<uint64_t>(w.num_panels());
  const auto scales = panels * static_cast<uint64_t>(panel_scale_bytes(w.format, w.k));
  uint64_t bytes = aligned_bytes(panels * static_cast<uint64_t>(panel_bytes(w.format, w.k)));
  bytes += aligned_bytes(scales);
  if (linear.minima) bytes += aligned_bytes(scales);
  if (linear.bias) bytes += aligned_bytes(static_cast<uint64_t>(w.n) * sizeof(float));
  return bytes;
}

void WeightPlanner::push(std::string_view prefix, int64_t index) {
  prefixes_.push_back(std::string(prefix) + "." + std::to_string(index) + ".");
}

void WeightPlanner::pop() { prefixes_.pop_back(); }

void WeightPlanner::fail(const std::string& what) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(what);
}

const StoredTensor* WeightPlanner::take(std::string_view name, const std::vector<int64_t>& shape) {
  std::string full;
  for (const std::string& prefix : prefixes_) full += prefix;
  full += name;
  const StoredTensor* tensor = catalog_.find(full);
  if (tensor == nullptr) {
    fail(catalog_.files().front() + ": tensor \"" + catalog_.stored_name(full) + "\" of shape " +
         shape_text(shape) + " is missing.");
    return nullptr;
  }
  if (tensor->shape != shape) {
    fail(catalog_.file(*tensor) + ": tensor \"" + tensor->name + "\" has shape " +
         shape_text(tensor->shape) + " where the configuration needs " + shape_text(shape) + ".");
    return nullptr;
  }
  taken_.insert(tensor);
  return tensor;
}

void WeightPlanner::vector(std::string_view name, const float*& field, int64_t size) {
  if (!status_.ok()) return;
  const StoredTensor* tensor = take(name, {size});
  if (tensor == nullptr) return;
  plan_.vectors.push_back({&field, tensor});
  plan_.bytes += aligned_bytes(static_cast<uint64_t>(size) * sizeof(float));
}

PlannedPart WeightPlanner::plan_part(const LinearPart& part, int64_t k, Split split, bool bias) {
  PlannedPart planned;
  planned.weight = take(std::string(part.name) + ".weight", {part.outputs, k});
  if (bias) planned.bias = take(std::string(part.name) + ".bias", {part.outputs});
  planned.rows = part.outputs;
  if (split == Split::columns) {
    const RowRange range = rank_rows(part, tp_);
    if (range.count == 0) {
      fail("The " + std::to_string(part.heads > 0 ? part.heads : part.outputs) +
           (part.heads > 0 ? " heads" : " outputs") + " of \"" + std::string(part.name) +
           "\" cannot be divided among " + std::to_string(tp_.size) + " ranks.");
    }
    planned.first_row = range.first;
    planned.rows = range.count;
  }
  if (catalog_.interleaved_qk() && part.heads > 0 && is_rotary_projection(part.name)) {
    planned.interleaved_head = part.outputs / part.heads;
  }
  return planned;
}

void WeightPlanner::linear(std::initializer_list<LinearPart> parts, LinearWeight& field, int64_t k,
                           Split split, bool bias) {
  if (!status_.ok()) return;
  PlannedLinear linear;
  linear.field = &field;
  linear.shape.k = k;
  if (split == Split::rows) {
    if (k % tp_.size != 0) {
      return fail("The " + std::to_string(k) + " inputs of \"" + std::string(parts.begin()->name) +
                  "\" cannot be divided among " + std::to_string(tp_.size) + " ranks.");
    }
    linear.shape.k = k / tp_.size;
    linear.first_column = tp_.rank * linear.shape.k;
  }
  for (const LinearPart& part : parts) {
    linear.parts.push_back(plan_part(part, k, split, bias));
    if (!status_.ok()) return;
    linear.shape.n += linear.parts.back().rows;
  }
  // The ranks' products are summed, so one rank alone may add the bias.
  linear.bias = bias && (split != Split::rows || tp_.rank == 0);
  const bool in_layer = !prefixes_.empty();
  linear.shape.format =
      choose_format(linear.parts, type_, in_layer, linear.first_column, linear.shape.k);
  if (type_ == WeightType::automatic && has_groups(linear.shape.format)) {
    for (const PlannedPart& p : linear.parts) linear.minima |= keeps_minimum(p.weight->type);
  }
  linear.minima |= type_ == WeightType::int4 && linear.shape.format == WeightFormat::int4_g32;
  linear.requantised = type_ == WeightType::w8a8 || type_ == WeightType::int4;
  plan_.bytes += planned_bytes(linear);
  plan_.linears.push_back(std::move(linear));
}

void WeightPlanner::share(LinearWeight& field, const LinearWeight& with) {
  plan_.shares.push_back({&field, &with});
  head_shared_ = true;
}

StatusOr<WeightPlan> WeightPlanner::finish() {
  MR_RETURN_IF_ERROR(status_);
  // Tied checkpoints may repeat the embedding as an output head, which the reference ignores.
  if (head_shared_) {
    if (const StoredTensor* head = catalog_.find("lm_head.weight")) taken_.insert(head);
  }
  for (const StoredTensor& tensor : catalog_.tensors()) {
    if (taken_.count(&tensor) == 0 && !catalog_.is_redundant(tensor)) {
      return absl::InvalidArgumentError(
          catalog_.file(tensor) + ": tensor \"" + tensor.name + "\" of shape " +
          shape_text(tensor.shape) + " is not part of the model that the configuration describes.");
    }
  }
  return std::move(plan_);
}

}  // namespace millrace
