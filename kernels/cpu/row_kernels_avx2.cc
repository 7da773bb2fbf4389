#include "kernels/cpu/row_kernels_simd.h"
#include "kernels/cpu/vec_avx2.h"

namespace millrace::cpu {

const RowKernels& row_kernels_avx2() { return kRowKernels<Avx2>; }

}  // namespace millrace::cpu
