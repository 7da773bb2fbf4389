#include "kernels/cpu/elementwise_simd.h"
#include "kernels/cpu/vec_avx512.h"

namespace millrace::cpu {

ElementwiseKernels elementwise_kernels_avx512() { return simd_kernels<Avx512>(); }

}  // namespace millrace::cpu
