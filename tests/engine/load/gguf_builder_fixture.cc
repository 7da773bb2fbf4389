#include "tests/engine/load/gguf_builder_fixture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace millrace {

template <class T>
void GgufBuilder::put(const std::string& name, T value) {
  if (!name.empty()) fields_.push_back({name, bytes_.size(), sizeof(T)});
  const auto* raw = reinterpret_cast<const uint8_t*>(&value);
  bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
}

void GgufBuilder::put_string(const std::string& name, const std::string& text) {
  put<uint64_t>(name, text.size());
  bytes_.insert(bytes_.end(), text.begin(), text.end());
}

GgufBuilder::GgufBuilder(uint64_t num_tensors, uint64_t num_values, uint32_t version) {
  bytes_ = {'G', 'G', 'U', 'F'};
  put<uint32_t>("version", version);
  put<uint64_t>("tensor count", num_tensors);
  put<uint64_t>("value count", num_values);
}

void GgufBuilder::key(const std::string& key, uint32_t type) {
  put_string(key + " key length", key);
  put<uint32_t>(key + " type", type);
}

void GgufBuilder::value_u32(const std::string& name, uint32_t value) {
  key(name, 4);
  put<uint32_t>(name, value);
}

void GgufBuilder::value_f32(const std::string& name, float value) {
  key(name, 6);
  put<float>(name, value);
}

void GgufBuilder::value_string(const std::string& name, const std::string& value) {
  key(name, 8);
  put_string(name + " length", value);
}

void GgufBuilder::value_strings(const std::string& name, const std::vector<std::string>& values) {
  key(name, 9);
  put<uint32_t>(name + " element type", 8);
  put<uint64_t>(name + " count", values.size());
  for (const std::string& value : values) put_string(name + " entry length", value);
}

void GgufBuilder::value_i32s(const std::string& name, const std::vector<int32_t>& values) {
  key(name, 9);
  put<uint32_t>(name + " element type", 5);
  put<uint64_t>(name + " count", values.size());
  for (const int32_t value : values) put<int32_t>("", value);
}

void GgufBuilder::value_f32s(const std::string& name, const std::vector<float>& values) {
  key(name, 9);
  put<uint32_t>(name + " element type", 6);
  put<uint64_t>(name + " count", values.size());
  for (const float value : values) put<float>("", value);
}

void GgufBuilder::tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                         uint64_t offset) {
  put_string(name + " name length", name);
  put<uint32_t>(name + " dimension count", static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) put<uint64_t>(name + " dimension", dim);
  put<uint32_t>(name + " tensor type", type);
  put<uint64_t>(name + " offset", offset);
}

std::vector<uint8_t> GgufBuilder::finish(size_t bytes, size_t alignment) {
  while (bytes_.size() % alignment != 0) bytes_.push_back(0);
  bytes_.resize(bytes_.size() + bytes);
  return bytes_;
}

TinyGguf make_tiny_gguf() {
  const std::vector<std::pair<std::string, std::vector<uint64_t>>> tensors = {
      {"token_embd.weight", {32, 8}},      {"output_norm.weight", {32}},
      {"blk.0.attn_norm.weight", {32}},    {"blk.0.ffn_norm.weight", {32}},
      {"blk.0.attn_q.weight", {32, 32}},   {"blk.0.attn_k.weight", {32, 32}},
      {"blk.0.attn_v.weight", {32, 32}},   {"blk.0.attn_output.weight", {32, 32}},
      {"blk.0.ffn_gate.weight", {32, 32}}, {"blk.0.ffn_up.weight", {32, 32}},
      {"blk.0.ffn_down.weight", {32, 32}},
  };
  GgufBuilder builder(tensors.size(), 15);
  builder.value_string("general.architecture", "llama");
  builder.value_u32("general.alignment", 32);
  builder.value_u32("llama.block_count", 1);
  builder.value_u32("llama.context_length", 64);
  builder.value_u32("llama.embedding_length", 32);
  builder.value_u32("llama.feed_forward_length", 32);
  builder.value_u32("llama.attention.head_count", 2);
  builder.value_u32("llama.rope.dimension_count", 16);
  builder.value_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  builder.value_string("tokenizer.ggml.model", "gpt2");
  builder.value_strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f", "g", "h"});
  builder.value_i32s("tokenizer.ggml.token_type", std::vector<int32_t>(8, 1));
  builder.value_f32s("tokenizer.ggml.scores", std::vector<float>(8, 0.5f));
  builder.value_u32("tokenizer.ggml.bos_token_id", 0);
  builder.value_u32("tokenizer.ggml.eos_token_id", 1);
  uint64_t offset = 0;
  for (const auto& [name, dims] : tensors) {
    builder.tensor(name, dims, 0, offset);
    uint64_t bytes = 4;
    for (const uint64_t dim : dims) bytes *= dim;
    offset += bytes;
  }
  TinyGguf tiny;
  tiny.bytes = builder.finish(offset);
  tiny.fields = builder.fields();
  return tiny;
}

std::string write_test_file(const std::string& name, const std::vector<uint8_t>& bytes) {
  return write_test_file(name, std::string(bytes.begin(), bytes.end()));
}

std::string write_test_file(const std::string& name, const std::string& text) {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) /
                                     (std::string(test->test_suite_name()) + "." + test->name()) /
                                     name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

}  // namespace millrace
