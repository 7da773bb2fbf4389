// Linked where CUDA kernels are not built: device_count() is 0, so nothing can ask for a CUDA
// context, and every op says what is missing.
#include "kernels/cuda/cuda.h"

namespace millrace::cuda {

#define MR_ABSENT(op, Params) \
  void op(const Ctx&, const Params&) { fatal(#op ": this build has no CUDA kernels"); }

MR_ABSENT(embed, EmbedParams)
MR_ABSENT(zero, ZeroParams)
MR_ABSENT(add_rmsnorm, AddRmsNormParams)
MR_ABSENT(head_rmsnorm, HeadRmsNormParams)
MR_ABSENT(silu_mul, SiluMulParams)
MR_ABSENT(gather_rows, GatherRowsParams)
MR_ABSENT(linear, LinearParams)
MR_ABSENT(rope, RopeParams)
MR_ABSENT(kv_append, KvAppendParams)
MR_ABSENT(attention, AttentionParams)
MR_ABSENT(sample, SampleParams)
MR_ABSENT(score_tokens, ScoreParams)

int device_count() { return 0; }

}  // namespace millrace::cuda
