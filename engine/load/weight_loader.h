// Carries out a WeightPlan: allocates the whole of it at once, converts stored rows into packed
// panels on several threads, and sets the model's fields.
#pragma once

#include "engine/base/status.h"
#include "engine/load/load.h"
#include "engine/load/weight_plan.h"

namespace millrace {

Status load_planned_weights(const WeightPlan& plan, int threads, WeightStore& store,
                            const LoadProgress& progress);

// Packed views of the plan's linears in `memory` (plan.bytes of it), assigned to the fields;
// vectors, biases and shares likewise. The float arrays are filled from the stored tensors.
void place_weights(const WeightPlan& plan, char* memory);

}  // namespace millrace
