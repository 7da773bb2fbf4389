#include "engine/load/stored_tensor.h"

#include "kernels/core/check.h"

namespace millrace {
namespace {

constexpr StoredTypeInfo kTypes[] = {
    {StoredType::f32, "F32", 1, 4},           {StoredType::f16, "F16", 1, 2},
    {StoredType::bf16, "BF16", 1, 2},         {StoredType::q4_0, "Q4_0", 32, 18},
    {StoredType::q4_1, "Q4_1", 32, 20},       {StoredType::q5_0, "Q5_0", 32, 22},
    {StoredType::q5_1, "Q5_1", 32, 24},       {StoredType::q8_0, "Q8_0", 32, 34},
    {StoredType::q2_k, "Q2_K", 256, 84},      {StoredType::q3_k, "Q3_K", 256, 110},
    {StoredType::q4_k, "Q4_K", 256, 144},     {StoredType::q5_k, "Q5_K", 256, 176},
    {StoredType::q6_k, "Q6_K", 256, 210},     {StoredType::iq4_nl, "IQ4_NL", 32, 18},
    {StoredType::iq4_xs, "IQ4_XS", 256, 136},
};

}  // namespace

const StoredTypeInfo* find_stored_type(uint32_t number) {
  for (const StoredTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == number) return &info;
  }
  return nullptr;
}

const StoredTypeInfo& stored_type_info(StoredType type) {
  const StoredTypeInfo* info = find_stored_type(static_cast<uint32_t>(type));
  MR_CHECK(info != nullptr);
  return *info;
}

std::string supported_stored_types() {
  std::string text;
  for (const StoredTypeInfo& info : kTypes) {
    if (!text.empty()) text += ", ";
    text += info.name;
  }
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t d : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(d);
  }
  return text + "]";
}

}  // namespace millrace
