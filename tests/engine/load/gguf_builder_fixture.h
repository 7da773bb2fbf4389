// GgufBuilder: writes GGUF bytes for tests, and remembers where each header field lies so that a
// test can put a lie there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

class GgufBuilder {
 public:
  struct Field {
    std::string name;
    size_t offset;
    size_t bytes;  // 4 or 8
  };

  GgufBuilder(uint64_t num_tensors, uint64_t num_values, uint32_t version = 3);

  void value_u32(const std::string& key, uint32_t value);
  void value_f32(const std::string& key, float value);
  void value_string(const std::string& key, const std::string& value);
  void value_strings(const std::string& key, const std::vector<std::string>& values);
  void value_i32s(const std::string& key, const std::vector<int32_t>& values);
  void value_f32s(const std::string& key, const std::vector<float>& values);
  // Dimensions innermost first, as stored.
  void tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
              uint64_t offset);
  // Pads to the alignment and appends the data; `bytes` of zeros.
  std::vector<uint8_t> finish(size_t bytes, size_t alignment = 32);

  const std::vector<Field>& fields() const { return fields_; }

 private:
  template <class T>
  void put(const std::string& name, T value);
  void put_string(const std::string& name, const std::string& text);
  void key(const std::string& key, uint32_t type);

  std::vector<uint8_t> bytes_;
  std::vector<Field> fields_;
};

// A complete model of one layer in F32: llama architecture, hidden 32, 2 heads, vocabulary 8.
struct TinyGguf {
  std::vector<uint8_t> bytes;
  std::vector<GgufBuilder::Field> fields;
};
TinyGguf make_tiny_gguf();

// Writes a file below the test's temporary folder and returns its path.
std::string write_test_file(const std::string& name, const std::vector<uint8_t>& bytes);
std::string write_test_file(const std::string& name, const std::string& text);

}  // namespace millrace
