// The CPU backend's entry points, one per op, called by kernels/ops.cc only. Each chooses its
// instruction-set level from ctx.cpu_level. In a dry run they take their scratch memory from
// ctx.arena and return.
#pragma once

#include "kernels/params.h"

namespace millrace::cpu {

void embed(const Ctx& c, const EmbedParams& p);
void zero(const Ctx& c, const ZeroParams& p);
void add_rmsnorm(const Ctx& c, const AddRmsNormParams& p);
void head_rmsnorm(const Ctx& c, const HeadRmsNormParams& p);
void silu_mul(const Ctx& c, const SiluMulParams& p);
void gather_rows(const Ctx& c, const GatherRowsParams& p);
void linear(const Ctx& c, const LinearParams& p);
void rope(const Ctx& c, const RopeParams& p);
void kv_append(const Ctx& c, const KvAppendParams& p);
void attention(const Ctx& c, const AttentionParams& p);
void sample(const Ctx& c, const SampleParams& p);
void score_tokens(const Ctx& c, const ScoreParams& p);

}  // namespace millrace::cpu
