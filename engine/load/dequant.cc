// Block layouts follow the ggml quantisation formats as published with the GGUF specification.
#include "engine/load/dequant.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/core/dtype.h"

namespace millrace {
namespace {

constexpr int64_t kSuperBlock = 256;

// The sixteen levels of the non-linear 4-bit formats.
constexpr int8_t kNonLinear4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

uint16_t load16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
float load_f16(const uint8_t* p) { return f16_to_float(load16(p)); }

// Low nibbles are elements 0..15, high nibbles 16..31.
void unpack_nibbles(const uint8_t* qs, int8_t* q, int offset) {
  for (int j = 0; j < 16; ++j) q[j] = static_cast<int8_t>((qs[j] & 15) - offset);
  for (int j = 0; j < 16; ++j) q[16 + j] = static_cast<int8_t>((qs[j] >> 4) - offset);
}

void unpack_five_bits(const uint8_t* high, const uint8_t* qs, int8_t* q, int offset) {
  const uint32_t bits = load32(high);
  for (int j = 0; j < 16; ++j) {
    const int top0 = static_cast<int>(bits >> j & 1) << 4;
    const int top1 = static_cast<int>(bits >> (j + 16) & 1) << 4;
    q[j] = static_cast<int8_t>(((qs[j] & 15) | top0) - offset);
    q[16 + j] = static_cast<int8_t>(((qs[j] >> 4) | top1) - offset);
  }
}

void decode_q4_0(const uint8_t* b, int8_t* q, float* scales, float*) {
  scales[0] = load_f16(b);
  unpack_nibbles(b + 2, q, 8);
}

void decode_q4_1(const uint8_t* b, int8_t* q, float* scales, float* minima) {
  scales[0] = load_f16(b);
  minima[0] = load_f16(b + 2);
  unpack_nibbles(b + 4, q, 0);
}

void decode_q5_0(const uint8_t* b, int8_t* q, float* scales, float*) {
  scales[0] = load_f16(b);
  unpack_five_bits(b + 2, b + 6, q, 16);
}

void decode_q5_1(const uint8_t* b, int8_t* q, float* scales, float* minima) {
  scales[0] = load_f16(b);
  minima[0] = load_f16(b + 2);
  unpack_five_bits(b + 4, b + 8, q, 0);
}

void decode_q8_0(const uint8_t* b, int8_t* q, float* scales, float*) {
  scales[0] = load_f16(b);
  std::memcpy(q, b + 2, 32);
}

// scales[16] (scale | minimum << 4), qs[64], d, dmin
void decode_q2_k(const uint8_t* b, int8_t* q, float* scales, float* minima) {
  const uint8_t* qs = b + 16;
  const float d = load_f16(b + 80), dmin = load_f16(b + 82);
  for (int g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(b[g] & 15);
    minima[g] = -(dmin * static_cast<float>(b[g] >> 4));
    const uint8_t* bytes = qs + g / 8 * 32 + g % 2 * 16;
    const int shift = g % 8 / 2 * 2;
    for (int l = 0; l < 16; ++l) q[g * 16 + l] = static_cast<int8_t>(bytes[l] >> shift & 3);
  }
}

// hmask[32], qs[64], scales[12] (sixteen of 6 bits), d
void decode_q3_k(const uint8_t* b, int8_t* q, float* scales, float*) {
  const uint8_t* high = b;
  const uint8_t* qs = b + 32;
  const uint8_t* packed = b + 96;
  const float d = load_f16(b + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
    const int top = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    scales[g] = d * static_cast<float>((low | top << 4) - 32);
    const uint8_t* bytes = qs + g / 8 * 32 + g % 2 * 16;
    const uint8_t* mask = high + g % 2 * 16;
    const int shift = g % 8 / 2 * 2, bit = g / 2;
    for (int l = 0; l < 16; ++l) {
      q[g * 16 + l] = static_cast<int8_t>((bytes[l] >> shift & 3) - (mask[l] >> bit & 1 ? 0 : 4));
    }
  }
}

// Scale and minimum j of the eight 6-bit pairs that Q4_K and Q5_K keep in 12 bytes.
void k4_scale(const uint8_t* packed, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *minimum = packed[j + 4] & 63;
  } else {
    *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    *minimum = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
  }
}

void k4_scales(const uint8_t* b, float* scales, float* minima) {
  const float d = load_f16(b), dmin = load_f16(b + 2);
  for (int g = 0; g < 8; ++g) {
    int scale, minimum;
    k4_scale(b + 4, g, &scale, &minimum);
    scales[g] = d * static_cast<float>(scale);
    minima[g] = -(dmin * static_cast<float>(minimum));
  }
}

// d, dmin, scales[12], qs[128]
void decode_q4_k(const uint8_t* b, int8_t* q, float* scales, float* minima) {
  k4_scales(b, scales, minima);
  const uint8_t* qs = b + 16;
  for (int pair = 0; pair < 4; ++pair, qs += 32, q += 64) {
    for (int l = 0; l < 32; ++l) q[l] = static_cast<int8_t>(qs[l] & 15);
    for (int l = 0; l < 32; ++l) q[32 + l] = static_cast<int8_t>(qs[l] >> 4);
  }
}

// d, dmin, scales[12], qh[32], qs[128]
void decode_q5_k(const uint8_t* b, int8_t* q, float* scales, float* minima) {
  k4_scales(b, scales, minima);
  const uint8_t* high = b + 16;
  const uint8_t* qs = b + 48;
  for (int pair = 0; pair < 4; ++pair, qs += 32, q += 64) {
    for (int l = 0; l < 32; ++l) {
      q[l] = static_cast<int8_t>((qs[l] & 15) | (high[l] >> (2 * pair) & 1) << 4);
      q[32 + l] = static_cast<int8_t>(qs[l] >> 4 | (high[l] >> (2 * pair + 1) & 1) << 4);
    }
  }
}

// ql[128], qh[64], scales[16] (int8), d
void decode_q6_k(const uint8_t* b, int8_t* q, float* scales, float*) {
  const float d = load_f16(b + 208);
  for (int g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(static_cast<int8_t>(b[192 + g]));
  }
  for (int half = 0; half < 2; ++half, q += 128) {
    const uint8_t* low = b + half * 64;
    const uint8_t* high = b + 128 + half * 32;
    for (int l = 0; l < 32; ++l) {
      const int h = high[l];
      q[l] = static_cast<int8_t>(((low[l] & 15) | (h & 3) << 4) - 32);
      q[l + 32] = static_cast<int8_t>(((low[l + 32] & 15) | (h >> 2 & 3) << 4) - 32);
      q[l + 64] = static_cast<int8_t>((low[l] >> 4 | (h >> 4 & 3) << 4) - 32);
      q[l + 96] = static_cast<int8_t>((low[l + 32] >> 4 | (h >> 6) << 4) - 32);
    }
  }
}

void unpack_non_linear(const uint8_t* qs, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = kNonLinear4[qs[j] & 15];
    q[16 + j] = kNonLinear4[qs[j] >> 4];
  }
}

void decode_iq4_nl(const uint8_t* b, int8_t* q, float* scales, float*) {
  scales[0] = load_f16(b);
  unpack_non_linear(b + 2, q);
}

// d, scales_h (8 x 2 bits), scales_l (8 x 4 bits), qs[128]
void decode_iq4_xs(const uint8_t* b, int8_t* q, float* scales, float*) {
  const float d = load_f16(b);
  const int high = load16(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int low = b[4 + g / 2] >> (g % 2 * 4) & 15;
    scales[g] = d * static_cast<float>((low | (high >> (2 * g) & 3) << 4) - 32);
    unpack_non_linear(b + 8 + g * 16, q + g * 32);
  }
}

using BlockDecoder = void (*)(const uint8_t* block, int8_t* q, float* scales, float* minima);

BlockDecoder block_decoder(StoredType type) {
  switch (type) {
    case StoredType::q4_0: return decode_q4_0;
    case StoredType::q4_1: return decode_q4_1;
    case StoredType::q5_0: return decode_q5_0;
    case StoredType::q5_1: return decode_q5_1;
    case StoredType::q8_0: return decode_q8_0;
    case StoredType::q2_k: return decode_q2_k;
    case StoredType::q3_k: return decode_q3_k;
    case StoredType::q4_k: return decode_q4_k;
    case StoredType::q5_k: return decode_q5_k;
    case StoredType::q6_k: return decode_q6_k;
    case StoredType::iq4_nl: return decode_iq4_nl;
    case StoredType::iq4_xs: return decode_iq4_xs;
    case StoredType::f32:
    case StoredType::f16:
    case StoredType::bf16: break;
  }
  return nullptr;
}

}  // namespace

bool is_quantised(StoredType type) { return block_decoder(type) != nullptr; }

int64_t stored_group_size(StoredType type) {
  return type == StoredType::q2_k || type == StoredType::q3_k || type == StoredType::q6_k ? 16 : 32;
}

bool has_minimum(StoredType type) {
  return type == StoredType::q4_1 || type == StoredType::q5_1 || type == StoredType::q2_k ||
         type == StoredType::q4_k || type == StoredType::q5_k;
}

bool fits_int4(StoredType type) {
  return type == StoredType::q4_0 || type == StoredType::q4_1 || type == StoredType::q4_k;
}

void decode_codes(StoredType type, const uint8_t* source, int64_t n, int8_t* q, float* scales,
                  float* minima) {
  const StoredTypeInfo& info = stored_type_info(type);
  MR_CHECK_OP(n % info.elements, ==, 0);
  const BlockDecoder decode = block_decoder(type);
  MR_CHECK(decode != nullptr);
  const int64_t groups = info.elements / stored_group_size(type);
  for (int64_t b = 0; b < n / info.elements; ++b) {
    decode(source + b * info.bytes, q + b * info.elements, scales + b * groups,
           minima + b * groups);
  }
}

void decode_floats(StoredType type, const uint8_t* source, int64_t n, float* out) {
  switch (type) {
    case StoredType::f32: std::memcpy(out, source, static_cast<size_t>(n) * 4); return;
    case StoredType::f16:
      for (int64_t i = 0; i < n; ++i) out[i] = load_f16(source + 2 * i);
      return;
    case StoredType::bf16:
      for (int64_t i = 0; i < n; ++i) out[i] = to_float(bf16{load16(source + 2 * i)});
      return;
    default: break;
  }
  const StoredTypeInfo& info = stored_type_info(type);
  MR_CHECK_OP(n % info.elements, ==, 0);
  const BlockDecoder decode = block_decoder(type);
  const int64_t group = stored_group_size(type);
  const bool with_minimum = has_minimum(type);
  int8_t q[kSuperBlock];
  float scales[16], minima[16];
  for (int64_t b = 0; b < n / info.elements; ++b, out += info.elements) {
    decode(source + b * info.bytes, q, scales, minima);
    for (int64_t i = 0; i < info.elements; ++i) {
      const float product = scales[i / group] * static_cast<float>(q[i]);
      out[i] = with_minimum ? product + minima[i / group] : product;
    }
  }
}

void requantise_int8(const float* w, int64_t n, int8_t* q, float* scales) {
  for (int64_t g = 0; g < n / 32; ++g, w += 32, q += 32) {
    float largest = 0.0f;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(w[i]));
    const float scale = f16_to_float(float_to_f16(largest / 127.0f));
    scales[g] = scale;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < 32; ++i) {
      const float level = std::clamp(std::nearbyint(w[i] * inverse), -127.0f, 127.0f);
      q[i] = std::isnan(level) ? int8_t{0} : static_cast<int8_t>(level);
    }
  }
}

}  // namespace millrace
