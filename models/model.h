// Model: one decoder family. bind() lists the weights once; forward() calls ops. No I/O, threads or
// allocation. Made by registry.h, filled by a WeightBinder, then immutable; forward() may be called
// by the device thread only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "kernels/ops.h"
#include "models/config.h"

namespace millrace {

// How a weight is divided among tensor-parallel ranks. `columns`: by outputs (rows of the stored
// matrix). `rows`: by inputs; the products of all ranks must be summed.
enum class Split : uint8_t { none, columns, rows };

// One stored matrix of a Linear. `heads` > 0 says that its outputs are heads of head_dim rows, so
// that a split keeps heads whole and replicates them when there are fewer heads than ranks.
struct LinearPart {
  std::string_view name;  // without ".weight" / ".bias"
  int64_t outputs = 0;    // of the whole model
  int64_t heads = 0;
};

// Receives the one list of weights of a model. The loader, the dummy-weight generator, the memory
// planner and `inspect` each implement it. Names are Hugging Face names; push/pop add a prefix.
// Shapes are those of the whole model; the binder applies the split. Fields receive views whose
// memory the binder's owner keeps alive for the model's life.
class WeightBinder {
 public:
  virtual ~WeightBinder() = default;
  virtual void push(std::string_view prefix, int64_t index) = 0;  // "model.layers", 3
  virtual void pop() = 0;
  // A small f32 vector, replicated on every rank.
  virtual void vector(std::string_view name, const float*& field, int64_t size) = 0;
  // Stored matrices of equal inputs `k`, stacked into one Linear in the given order. Biases of the
  // parts are bound where `bias` is true (required then, refused in the file otherwise); with
  // Split::rows only rank 0 has it, since the products of all ranks are summed.
  virtual void linear(std::initializer_list<LinearPart> parts, LinearWeight& field, int64_t k,
                      Split split, bool bias) = 0;
  // `field` is the same memory as an already bound weight.
  virtual void share(LinearWeight& field, const LinearWeight& with) = 0;
};

// The step's inputs on the device, as views into the executor's step buffers.
struct Step {
  std::span<const int32_t> tokens;     // [T]
  std::span<const int32_t> positions;  // [T]
  // Per KV group: slot of each token, and the sequences with that group's page tables.
  struct Group {
    std::span<const int32_t> slots;  // [T]
    std::span<const AttentionSequence> sequences;
  };
  std::span<const Group> groups;
  std::span<const int32_t> logit_rows;  // [R] rows whose final hidden state is wanted
};

// Where a layer's KV lives: its group and its view.
struct KvBinding {
  int group = 0;
  KvLayer layer;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual void bind(WeightBinder& binder) = 0;
  // hidden [R, H] = final normed hidden states of step.logit_rows. kv has one entry per layer.
  virtual void forward(const Ctx& c, const Step& step, std::span<const KvBinding> kv,
                       Tensor hidden) const = 0;
  // logits [R, vocab] of hidden [R, H]; whole vocabulary on every rank.
  virtual void logits(const Ctx& c, Tensor logits, Tensor hidden) const = 0;
};

}  // namespace millrace
