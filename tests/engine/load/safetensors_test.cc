#include "engine/load/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/load/load.h"
#include "tests/engine/load/gguf_builder_fixture.h"

namespace millrace {
namespace {

std::vector<uint8_t> file_bytes(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::vector<uint8_t> bytes(sizeof size + header.size() + data_bytes);
  std::memcpy(bytes.data(), &size, sizeof size);
  std::copy(header.begin(), header.end(), bytes.begin() + sizeof size);
  return bytes;
}

std::string error_of(const std::vector<uint8_t>& bytes) {
  const auto result = parse_safetensors(bytes, "x.safetensors");
  EXPECT_FALSE(result.ok());
  const std::string message = status_message(result.status());
  EXPECT_EQ(message.find("x.safetensors: "), 0u) << message;
  return message;
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& range) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + range + "}";
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const auto bytes =
      file_bytes("{" + entry("b", "F32", "[2,3]", "[8,32]") + "," +
                     entry("a", "BF16", "[4]", "[0,8]") + ",\"__metadata__\":{\"format\":\"pt\"}}",
                 32);
  const auto tensors = parse_safetensors(bytes, "x.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*tensors)[1].data - (*tensors)[0].data, 8);
}

TEST(Safetensors, HostileHeaders) {
  const auto holds = [](const std::string& entries, size_t data, const char* expected) {
    const std::string message = error_of(file_bytes("{" + entries + "}", data));
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  };
  holds(entry("a", "F32", "[2]", "[0,16]"), 16, "needs 8 bytes, but its range has 16");
  holds(entry("a", "F32", "[2]", "[4,12]"), 8, "truncated or damaged");
  holds(entry("a", "F32", "[2]", "[8,0]"), 16, "truncated or damaged");
  holds(entry("a", "F32", "[-1]", "[0,8]"), 8, "\"shape\"");
  holds(entry("a", "F32", "[9223372036854775807,2]", "[0,8]"), 8, "\"shape\"");
  holds(entry("a", "F32", "[0]", "[0,0]"), 0, "\"shape\"");
  holds(entry("a", "F32", "[1,1,1,1,1]", "[0,4]"), 4, "1 to 4 sizes");
  holds(entry("a", "I64", "[1]", "[0,8]"), 8, "type I64 is not supported; F32, F16 and BF16");
  holds(entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[2,6]"), 8, "overlap");
  holds(entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[8,12]"), 12,
        "preceded by bytes of no tensor");
  holds(entry("a", "F32", "[1]", "[0,4]"), 8, "4 bytes after the last tensor");
  holds(entry("a", "F32", "[1]", "[0,4]") + "," + entry("a", "F32", "[1]", "[4,8]"), 8,
        "tensor \"a\" occurs twice");
  holds("\"a\":7", 0, "must be an object");
  EXPECT_NE(error_of(file_bytes("[]", 0)).find("not a JSON object"), std::string::npos);
  EXPECT_NE(error_of(file_bytes(std::string(100000, '['), 0)).find("not a JSON object"),
            std::string::npos);
  EXPECT_NE(error_of({1, 2, 3}).find("fewer than the 8"), std::string::npos);
}

TEST(Safetensors, HeaderLengthLiesAndTruncations) {
  const auto good = file_bytes("{" + entry("a", "F32", "[64]", "[0,256]") + "}", 256);
  ASSERT_TRUE(parse_safetensors(good, "x").ok());
  for (const uint64_t lie : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 31, uint64_t{0xffffffff},
                             (uint64_t{1} << 63) - 1, ~uint64_t{0}}) {
    auto bytes = good;
    std::memcpy(bytes.data(), &lie, sizeof lie);
    error_of(bytes);
  }
  for (size_t size = 0; size < good.size(); size += 16) {
    error_of({good.begin(), good.begin() + static_cast<int64_t>(size)});
  }
}

TEST(ShardIndexFile, MustMapTensorsToFilesOfTheFolder) {
  EXPECT_FALSE(parse_shard_index("{}", "i").ok());
  EXPECT_FALSE(parse_shard_index("{\"weight_map\":{}}", "i").ok());
  EXPECT_FALSE(parse_shard_index("{\"weight_map\":{\"a\":1}}", "i").ok());
  EXPECT_FALSE(parse_shard_index("{\"weight_map\":{\"a\":\"../b.safetensors\"}}", "i").ok());
  const auto index =
      parse_shard_index("{\"weight_map\":{\"a\":\"s\",\"b\":\"t\",\"c\":\"s\"}}", "i");
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->files, (std::vector<std::string>{"s", "t"}));
  EXPECT_EQ(index->tensors.size(), 3u);
}

// A sharded folder around the config of a committed tiny model; the tensors are three scalars-like
// vectors, which is enough to see what is read.
class ShardedFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream config(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/tiny/llama/config.json");
    const std::string text((std::istreambuf_iterator<char>(config)), {});
    folder_ = std::filesystem::path(write_test_file("config.json", text)).parent_path().string();
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      if (file.path().extension() == ".safetensors") std::filesystem::remove(file.path());
    }
    write_test_file("model.safetensors.index.json",
                    R"({"weight_map":{"a":"s-1.safetensors","x":"s-2.safetensors",)"
                    R"("b":"s-3.safetensors"}})");
  }
  void shard(const std::string& name, const std::string& tensor) {
    write_test_file(name, file_bytes("{" + entry(tensor, "F32", "[4]", "[0,16]") + "}", 16));
  }
  std::string folder_;
};

TEST_F(ShardedFolder, IndexIsTheAllowList) {
  shard("s-2.safetensors", "x");
  shard("s-3.safetensors", "b");
  // Another "x" beside "a", and strays that the index does not name.
  write_test_file("s-1.safetensors", file_bytes("{" + entry("a", "F32", "[4]", "[0,16]") + "," +
                                                    entry("x", "F32", "[8]", "[16,48]") + "}",
                                                48));
  shard("model.safetensors", "stray");
  write_test_file("model-4bit.safetensors", std::string("damaged"));
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ((*checkpoint)->tensors().size(), 3u);
  for (const TensorInfo& tensor : (*checkpoint)->tensors()) {
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{4})) << tensor.name;
  }
}

TEST_F(ShardedFolder, MissingShardIsNamed) {
  shard("s-1.safetensors", "a");
  shard("s-2.safetensors", "x");
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(status_message(checkpoint.status()).find("index.json names s-3.safetensors"),
            std::string::npos)
      << checkpoint.status();
}

TEST_F(ShardedFolder, IndexOfAnotherUploadIsRefused) {
  shard("s-1.safetensors", "a");
  shard("s-2.safetensors", "renamed");
  shard("s-3.safetensors", "b");
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_NE(status_message(checkpoint.status()).find("\"x\" is not in s-2.safetensors"),
            std::string::npos)
      << checkpoint.status();
}

TEST_F(ShardedFolder, WithoutIndexOnlyOneFileIsRead) {
  std::filesystem::remove(folder_ + "/model.safetensors.index.json");
  shard("other.safetensors", "x");
  EXPECT_FALSE(Checkpoint::open(folder_).ok());
  shard("model.safetensors", "a");
  write_test_file("other.safetensors", std::string("damaged"));
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_FALSE(checkpoint.ok());  // the configuration has more layers than there are tensors
  EXPECT_NE(status_message(checkpoint.status()).find("number of layers"), std::string::npos);
}

}  // namespace
}  // namespace millrace
