#include "tests/engine/load/dequant_fixture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

std::vector<char> read_bytes(const std::string& name) {
  std::ifstream file(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/dequant/" + name,
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<DequantCase> read_dequant_cases() {
  const nlohmann::json index = nlohmann::json::parse(read_bytes("index.json"));
  const std::vector<char> blocks = read_bytes("blocks.bin"), floats = read_bytes("floats.bin");
  std::vector<DequantCase> cases;
  size_t block_at = 0, float_at = 0;
  for (const nlohmann::json& entry : index) {
    const StoredTypeInfo* info = find_stored_type(entry.at("number").get<uint32_t>());
    EXPECT_NE(info, nullptr);
    DequantCase c{info->type, entry.at("name"), {}, {}};
    const auto bytes = entry.at("bytes").get<size_t>(), n = entry.at("elements").get<size_t>();
    c.blocks.assign(blocks.begin() + static_cast<int64_t>(block_at),
                    blocks.begin() + static_cast<int64_t>(block_at + bytes));
    c.floats.resize(n);
    std::memcpy(c.floats.data(), floats.data() + float_at, n * sizeof(float));
    block_at += bytes;
    float_at += n * sizeof(float);
    cases.push_back(std::move(c));
  }
  EXPECT_EQ(block_at, blocks.size());
  return cases;
}

}  // namespace millrace
