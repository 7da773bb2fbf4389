#include "engine/load/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "engine/load/gguf_config.h"
#include "engine/load/load.h"
#include "tests/engine/load/gguf_builder_fixture.h"

namespace millrace {
namespace {

// Everything that opening a file reads before weights are loaded.
Status read_all(std::span<const uint8_t> bytes) {
  MR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes, "x.gguf"));
  MR_ASSIGN_OR_RETURN(const TensorCatalog catalog,
                      TensorCatalog::make(file.tensors(), {"x.gguf"}, TensorNaming::gguf, true));
  MR_RETURN_IF_ERROR(gguf_model_config(file, catalog).status());
  return gguf_vocabulary(file).status();
}

std::string error_of(const std::vector<uint8_t>& bytes) {
  const Status status = read_all(bytes);
  EXPECT_FALSE(status.ok());
  return status_message(status);
}

TEST(Gguf, ReadsValuesAndTensors) {
  const TinyGguf tiny = make_tiny_gguf();
  const auto file = GgufFile::parse(tiny.bytes, "x.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(**file->string("general.architecture"), "llama");
  EXPECT_EQ(**file->integer("llama.block_count"), 1);
  EXPECT_FLOAT_EQ(static_cast<float>(**file->number("llama.attention.layer_norm_rms_epsilon")),
                  1e-5f);
  EXPECT_EQ(file->strings("tokenizer.ggml.tokens")->at(7), "h");
  EXPECT_EQ(file->integers("tokenizer.ggml.token_type")->size(), 8u);
  EXPECT_EQ(*file->integer("no.such.key"), std::nullopt);
  ASSERT_EQ(file->tensors().size(), 11u);
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<int64_t>{8, 32}));
  EXPECT_TRUE(read_all(tiny.bytes).ok()) << read_all(tiny.bytes);
}

TEST(Gguf, WrongValueTypeNamesTheKey) {
  const TinyGguf tiny = make_tiny_gguf();
  const auto file = GgufFile::parse(tiny.bytes, "x.gguf");
  ASSERT_TRUE(file.ok());
  const auto wrong = file->integer("general.architecture");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(status_message(wrong.status()),
            "x.gguf: key \"general.architecture\" is a string where an integer is expected.");
  EXPECT_FALSE(file->strings("tokenizer.ggml.scores").ok());
  EXPECT_FALSE(file->boolean("llama.block_count").ok());
}

// Each number of the header replaced by each lie: an error or a harmless difference, never a crash
// (the sanitizers watch) and never a large allocation.
TEST(Gguf, LiesInEveryHeaderField) {
  const TinyGguf tiny = make_tiny_gguf();
  const uint64_t lies[] = {0,     1,          3,         1ull << 31, 0xffffffff, (1ull << 63) - 1,
                           ~0ull, 1ull << 32, 1ull << 62};
  int refused = 0;
  for (const GgufBuilder::Field& field : tiny.fields) {
    for (const uint64_t lie : lies) {
      std::vector<uint8_t> bytes = tiny.bytes;
      std::memcpy(bytes.data() + field.offset, &lie, field.bytes);
      const Status status = read_all(bytes);
      if (!status.ok()) {
        ++refused;
        EXPECT_NE(status_message(status).find("x.gguf"), std::string::npos) << status;
      }
      // Counts of more than the file can hold are always refused.
      const bool is_count = field.name.ends_with("count") || field.name.ends_with("length") ||
                            field.name.ends_with("dimension");
      if (is_count && field.bytes == 8 && lie > bytes.size()) {
        EXPECT_FALSE(status.ok()) << field.name << " = " << lie;
      }
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(Gguf, TruncatedAnywhere) {
  const TinyGguf tiny = make_tiny_gguf();
  for (size_t size = 0; size < tiny.bytes.size(); size += 64) {
    const std::vector<uint8_t> bytes(tiny.bytes.begin(),
                                     tiny.bytes.begin() + static_cast<int64_t>(size));
    EXPECT_FALSE(read_all(bytes).ok()) << size;
  }
}

TEST(Gguf, DimensionsWhoseProductWraps) {
  GgufBuilder builder(1, 0);
  builder.tensor("t", {(1ull << 63) - 1, 2}, 0, 0);
  EXPECT_NE(error_of(builder.finish(64)).find("tensor \"t\" has a dimension of"),
            std::string::npos);
}

TEST(Gguf, MoreThanFourDimensions) {
  GgufBuilder builder(1, 0);
  builder.tensor("t", {1, 1, 1, 1, 1}, 0, 0);
  EXPECT_NE(error_of(builder.finish(64)).find("5 dimensions; 1 to 4"), std::string::npos);
}

TEST(Gguf, TensorsThatOverlapOrRepeatOrStraddle) {
  GgufBuilder overlap(2, 0);
  overlap.tensor("a", {32}, 0, 0);
  overlap.tensor("b", {32}, 0, 64);
  EXPECT_NE(error_of(overlap.finish(512)).find("tensors \"a\" and \"b\" overlap"),
            std::string::npos);
  GgufBuilder twice(2, 0);
  twice.tensor("a", {8}, 0, 0);
  twice.tensor("a", {8}, 0, 32);
  EXPECT_NE(error_of(twice.finish(512)).find("tensor \"a\" occurs twice"), std::string::npos);
  GgufBuilder misaligned(1, 0);
  misaligned.tensor("a", {8}, 0, 16);
  EXPECT_NE(error_of(misaligned.finish(512)).find("not a multiple of the alignment 32"),
            std::string::npos);
  GgufBuilder partial(1, 0);
  partial.tensor("a", {40}, 2, 0);
  EXPECT_NE(error_of(partial.finish(512)).find("not a multiple of 32 as Q4_0 needs"),
            std::string::npos);
}

TEST(Gguf, UnsupportedTypeIsNamedWithTheSupportedOnes) {
  GgufBuilder builder(1, 0);
  builder.tensor("blk.0.x", {256}, 16, 0);
  const std::string error = error_of(builder.finish(512));
  EXPECT_NE(error.find("\"blk.0.x\" has ggml type 16, which is not supported; F32"),
            std::string::npos)
      << error;
}

TEST(Gguf, AlignmentMustBeAPowerOfTwoOfTheRightType) {
  for (const uint32_t alignment : {0u, 3u, 1u << 31}) {
    GgufBuilder builder(0, 1);
    builder.value_u32("general.alignment", alignment);
    EXPECT_NE(error_of(builder.finish(64)).find("general.alignment"), std::string::npos);
  }
  GgufBuilder builder(0, 1);
  builder.value_string("general.alignment", "32");
  EXPECT_NE(error_of(builder.finish(64)).find("general.alignment"), std::string::npos);
}

TEST(Gguf, DuplicateKeysAndOtherVersionsAreRefused) {
  GgufBuilder twice(0, 2);
  twice.value_u32("k", 1);
  twice.value_u32("k", 2);
  EXPECT_NE(error_of(twice.finish(64)).find("key \"k\" occurs twice"), std::string::npos);
  EXPECT_NE(error_of(GgufBuilder(0, 0, 1).finish(64)).find("version 1"), std::string::npos);
  EXPECT_NE(error_of(GgufBuilder(0, 0, 0x03000000).finish(64)).find("big-endian"),
            std::string::npos);
}

TEST(GgufConfig, HugeLayerCountIsRefusedByTheNumberOfTensors) {
  TinyGguf tiny = make_tiny_gguf();
  for (const GgufBuilder::Field& field : tiny.fields) {
    if (field.name != "llama.block_count") continue;
    const uint32_t layers = 4'000'000'000u;
    std::memcpy(tiny.bytes.data() + field.offset, &layers, sizeof layers);
  }
  EXPECT_NE(error_of(tiny.bytes).find("the number of layers is 4000000000"), std::string::npos);
}

TEST(GgufCheckpoint, SplitsAreOpenedTogetherAndMissingOnesAreNamed) {
  GgufBuilder first(1, 10);
  first.value_string("general.architecture", "llama");
  first.value_u32("split.count", 2);
  first.value_u32("split.no", 0);
  first.value_u32("split.tensors.count", 2);
  first.value_u32("llama.block_count", 1);
  first.value_u32("llama.context_length", 64);
  first.value_u32("llama.embedding_length", 32);
  first.value_u32("llama.feed_forward_length", 32);
  first.value_u32("llama.attention.head_count", 2);
  first.value_u32("tokenizer.ggml.eos_token_id", 1);
  first.tensor("token_embd.weight", {32, 8}, 0, 0);
  const std::string path = write_test_file("m-00001-of-00002.gguf", first.finish(1024));
  std::filesystem::remove(std::filesystem::path(path).replace_filename("m-00002-of-00002.gguf"));
  const auto alone = Checkpoint::open(path);
  ASSERT_FALSE(alone.ok());
  EXPECT_NE(status_message(alone.status()).find("m-00002-of-00002.gguf"), std::string::npos);

  GgufBuilder second(1, 1);
  second.value_u32("split.no", 1);
  second.tensor("output_norm.weight", {32}, 0, 0);
  write_test_file("m-00002-of-00002.gguf", second.finish(128));
  const auto both = Checkpoint::open(path);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)->tensors().size(), 2u);
  EXPECT_EQ((*both)->model_name(), "m");
  EXPECT_NE((*both)->tensors()[1].file.find("00002-of-00002"), std::string::npos);
}

}  // namespace
}  // namespace millrace
