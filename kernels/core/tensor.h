// Tensor: a non-owning view of device memory with named-by-position dimensions. Values are passed
// by copy; whoever made the memory (arena, weight store, KV cache) owns it and outlives the view.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace millrace {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  int64_t dims[3] = {0, 0, 0};
  int64_t strides[3] = {0, 0, 0};  // in elements; the last one is always 1

  Tensor() = default;
  // A contiguous view.
  Tensor(void* memory, DType type, std::initializer_list<int64_t> shape)
      : data(memory), dtype(type), rank(static_cast<int>(shape.size())) {
    MR_CHECK_OP(shape.size(), <=, 3u);
    int i = 0;
    for (const int64_t d : shape) dims[i++] = d;
    int64_t stride = 1;
    for (i = rank - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= dims[i];
    }
  }

  int64_t dim(int i) const { return dims[i]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  bool contiguous() const {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dims[i] != 1 && strides[i] != stride) return false;
      stride *= dims[i];
    }
    return true;
  }
  template <class T>
  T* row(int64_t i) const {
    return static_cast<T*>(data) + i * strides[0];
  }
  // Rows [begin, begin + count) of the first dimension.
  Tensor rows(int64_t begin, int64_t count) const {
    MR_CHECK_OP(begin + count, <=, dims[0]);
    Tensor t = *this;
    if (data) t.data = static_cast<char*>(data) + begin * strides[0] * dtype_bytes(dtype);
    t.dims[0] = count;
    return t;
  }
  // Columns [begin, begin + count) of a matrix [rows, cols]; keeps the row stride.
  Tensor columns(int64_t begin, int64_t count) const {
    MR_CHECK_OP(rank, ==, 2);
    MR_CHECK_OP(begin + count, <=, dims[1]);
    Tensor t = *this;
    if (data) t.data = static_cast<char*>(data) + begin * dtype_bytes(dtype);
    t.dims[1] = count;
    return t;
  }
};

}  // namespace millrace
