#include "kernels/cpu/elementwise_simd.h"
#include "kernels/cpu/vec_avx2.h"

namespace millrace::cpu {

ElementwiseKernels elementwise_kernels_avx2() { return simd_kernels<Avx2>(); }

}  // namespace millrace::cpu
