#include "engine/load/checkpoint.h"

#include <filesystem>

#include "engine/load/weight_loader.h"
#include "engine/load/weight_plan.h"
#include "models/registry.h"

namespace millrace {

MappedCheckpoint::MappedCheckpoint(CheckpointParts parts) : parts_(std::move(parts)) {
  for (const StoredTensor& tensor : parts_.catalog.tensors()) {
    tensor_infos_.push_back({tensor.name, stored_type_info(tensor.type).name, tensor.shape,
                             tensor.bytes, parts_.catalog.file(tensor)});
  }
}

Status MappedCheckpoint::load_weights(Model& model, const TensorParallel& tp, WeightType type,
                                      int threads, WeightStore& store,
                                      const LoadProgress& progress) {
  WeightPlanner planner(parts_.catalog, tp, type);
  model.bind(planner);
  MR_ASSIGN_OR_RETURN(const WeightPlan plan, planner.finish());
  for (const MappedFile& file : parts_.files) file.expect_sequential_read();
  const Status loaded = load_planned_weights(plan, threads, store, progress);
  for (const MappedFile& file : parts_.files) file.release_pages();
  return loaded;
}

std::string name_from_path(const std::string& path, std::string_view suffix) {
  std::filesystem::path p(path);
  if (p.filename().empty()) p = p.parent_path();
  std::string name = p.filename().string();
  if (name.size() > suffix.size() && name.ends_with(suffix)) {
    name.resize(name.size() - suffix.size());
  }
  return name;
}

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return absl::NotFoundError(path + " does not exist.");
  }
  if (std::filesystem::is_directory(status)) return open_hf_folder(path);
  return open_gguf(path);
}

namespace {

// The plan of `model`, whose fields are filled by what the plan says.
StatusOr<WeightPlan> plan_weights(const Checkpoint& checkpoint, const TensorCatalog* catalog,
                                  Model& model, const TensorParallel& tp, WeightType type) {
  if (catalog == nullptr) {
    return absl::UnimplementedError(checkpoint.path() + " has no tensors to plan.");
  }
  const std::string refusal = check_tensor_parallel(checkpoint.config(), tp.size);
  if (!refusal.empty()) return absl::InvalidArgumentError(refusal + ".");
  WeightPlanner planner(*catalog, tp, type);
  model.bind(planner);
  return planner.finish();
}

}  // namespace

StatusOr<uint64_t> planned_weight_bytes(const Checkpoint& checkpoint, const TensorParallel& tp,
                                        WeightType type) {
  const std::unique_ptr<Model> model = make_model(checkpoint.config(), {}, 1);
  MR_ASSIGN_OR_RETURN(const WeightPlan plan,
                      plan_weights(checkpoint, checkpoint.catalog(), *model, tp, type));
  return plan.bytes;
}

Status bind_planned_shapes(const Checkpoint& checkpoint, Model& model, const TensorParallel& tp,
                           WeightType type) {
  MR_ASSIGN_OR_RETURN(const WeightPlan plan,
                      plan_weights(checkpoint, checkpoint.catalog(), model, tp, type));
  for (const PlannedLinear& linear : plan.linears) *linear.field = linear.shape;
  for (const PlannedShare& share : plan.shares) *share.field = *share.with;
  return absl::OkStatus();
}

}  // namespace millrace
