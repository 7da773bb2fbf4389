#include "kernels/cpu/row_kernels_simd.h"
#include "kernels/cpu/vec_avx512.h"

namespace millrace::cpu {

const RowKernels& row_kernels_avx512() { return kRowKernels<Avx512>; }

}  // namespace millrace::cpu
