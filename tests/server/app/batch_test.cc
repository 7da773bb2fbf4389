#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/app/batch_input.h"
#include "server/app/batch_store.h"

namespace millrace::app {
namespace {

class BatchFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "batch_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    out_ = folder_ + "/out.jsonl";
    in_ = folder_ + "/in.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::vector<LineReader::Line> lines(const std::string& text, size_t limit = 100) {
    write(in_, text);
    auto reader = LineReader::open(in_, limit);
    std::vector<LineReader::Line> all;
    while (auto line = reader->next()) all.push_back(*line);
    return all;
  }

  std::string folder_, out_, in_;
};

TEST_F(BatchFiles, LinesKeepTheirNumbersAndLoseTheirEnds) {
  const auto all = lines("\xEF\xBB\xBF{1}\r\n\r\n  \n{2}\n" + std::string(500'000, 'x') + "\n{3}");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].text, "{1}");
  EXPECT_EQ(all[1].text, "{2}");
  EXPECT_EQ(all[1].number, 4);
  EXPECT_TRUE(all[2].too_long);
  EXPECT_EQ(all[3].text, "{3}");
  EXPECT_EQ(all[3].number, 6);
  EXPECT_TRUE(lines("").empty());
  EXPECT_EQ(lines(std::string(100, 'y') + "\n")[0].text.size(), 100u);
  EXPECT_TRUE(lines(std::string(101, 'y'))[0].too_long);
}

TEST_F(BatchFiles, RowsAreCheckedOneByOne) {
  const auto code = [](const std::string& text) {
    const auto row = parse_row({1, text, false});
    return row.index() == 0 ? std::string("ok") : std::get<RowError>(row).code;
  };
  const std::string rest = R"("method":"POST","url":"/v1/chat/completions","body":{"messages":[]})";
  EXPECT_EQ(code("{\"custom_id\":\"a\"," + rest + "}"), "ok");
  EXPECT_EQ(code("{" + rest + "}"), "missing_custom_id");
  EXPECT_EQ(code("{\"custom_id\":5," + rest + "}"), "invalid_custom_id");
  EXPECT_EQ(code("{\"custom_id\":\"\"," + rest + "}"), "invalid_custom_id");
  EXPECT_EQ(code("null"), "invalid_json");
  EXPECT_EQ(code("[1,2]"), "invalid_json");
  EXPECT_EQ(code("{oops"), "invalid_json");
  EXPECT_EQ(code("{\"custom_id\":\"\xff\"}"), "invalid_utf8");
  EXPECT_EQ(code(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})"),
            "invalid_method");
  EXPECT_EQ(code(R"({"custom_id":"a","method":"POST","url":"/v1/other","body":{}})"),
            "invalid_url");
  EXPECT_EQ(code(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":"x"})"),
            "invalid_body");
  EXPECT_EQ(
      code(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"stream":true}})"),
      "invalid_body");
  EXPECT_EQ(code(std::string(100'000, '[')), "invalid_json");
  // A bias map is as large as over HTTP, although it lies a level deeper.
  const auto biased = [&](int entries) {
    std::string map;
    for (int i = 0; i < entries; ++i) map += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
    return code(
        R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"logit_bias":{)" + map +
        "}}}");
  };
  EXPECT_EQ(biased(1024), "ok");
  EXPECT_EQ(biased(1025), "invalid_json");
}

TEST_F(BatchFiles, EqualIdsAreRefusedWithBothLines) {
  const std::string rest = R"(,"method":"POST","url":"/v1/completions","body":{}})";
  write(in_, "{\"custom_id\":\"a\"" + rest + "\n\n{\"custom_id\":\"a\"" + rest + "\n");
  const auto survey = survey_batch(in_, 1000);
  ASSERT_FALSE(survey.ok());
  EXPECT_NE(status_message(survey.status()).find("lines 1 and 3"), std::string::npos);
}

TEST_F(BatchFiles, AnswersSurviveAndComeOutInOrder) {
  {
    auto store = BatchStore::open(out_, "manifest");
    ASSERT_TRUE(store.ok());
    EXPECT_TRUE(store->append(7, "seven").ok());
    EXPECT_TRUE(store->append(2, "two").ok());
    EXPECT_FALSE(BatchStore::open(out_, "manifest").ok()) << "the lock is held";
  }
  { std::ofstream(out_ + ".partial", std::ios::app) << "9 torn"; }
  auto store = BatchStore::open(out_, "manifest");
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE(store->resumed());
  EXPECT_TRUE(store->has(7) && store->has(2) && !store->has(9));
  EXPECT_TRUE(store->append(9, "nine").ok());
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_TRUE(store->finish().ok());
  EXPECT_EQ(read(out_), "two\nseven\nnine\n");
  EXPECT_FALSE(std::filesystem::exists(out_ + ".partial"));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".lock"));
}

// A supervisor that restarts until it sees success may do so after the last byte was written.
TEST_F(BatchFiles, ARunRepeatedAfterItsEndHasNothingToDo) {
  {
    auto store = BatchStore::open(out_, "m");
    ASSERT_TRUE(store.ok());
    EXPECT_FALSE(store->complete());
    EXPECT_TRUE(store->append(1, "one").ok() && store->finish().ok());
  }
  EXPECT_TRUE(BatchStore::open(out_, "m")->complete());
  EXPECT_TRUE(BatchStore::open(out_, "m")->complete()) << "and again";
  EXPECT_FALSE(BatchStore::open(out_, "another").ok());
  EXPECT_EQ(read(out_), "one\n");
  std::filesystem::remove(out_);
  EXPECT_FALSE(BatchStore::open(out_, "m")->complete()) << "answers that are gone are made again";
}

TEST_F(BatchFiles, ARunOfAnotherKindIsRefused) {
  { ASSERT_TRUE(BatchStore::open(out_, "one").ok()); }
  const auto other = BatchStore::open(out_, "two");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(status_message(other.status()).find(".manifest"), std::string::npos);
  std::filesystem::remove(out_ + ".manifest");
  write(out_, "done\n");
  EXPECT_FALSE(BatchStore::open(out_, "one").ok()) << "a finished output is never overwritten";
}

TEST_F(BatchFiles, APartialFileWithoutAManifestIsOfNoRun) {
  // What a kill between the removal of the manifest and that of the partial file leaves.
  write(out_ + ".partial", "1 of an earlier input\n2 torn");
  auto store = BatchStore::open(out_, "m");
  ASSERT_TRUE(store.ok());
  EXPECT_FALSE(store->resumed());
  EXPECT_EQ(store->rows(), 0);
  EXPECT_TRUE(store->append(1, "one").ok() && store->finish().ok());
  EXPECT_EQ(read(out_), "one\n");
}

TEST_F(BatchFiles, APartialFileThatIsDamagedIsRefusedAndKept) {
  { ASSERT_TRUE(BatchStore::open(out_, "m").ok()); }
  write(out_ + ".partial", "1 one\n{\"custom_id\":1}\n");
  const auto store = BatchStore::open(out_, "m");
  ASSERT_FALSE(store.ok());
  EXPECT_NE(status_message(store.status()).find("byte 6"), std::string::npos);
  EXPECT_EQ(read(out_ + ".partial"), "1 one\n{\"custom_id\":1}\n");
}

// Killed after any number of bytes: whole rows are kept, at most the last one is repeated, and in
// the end each is there once.
TEST_F(BatchFiles, EveryPlaceToDieIsResumedFrom) {
  std::string whole;
  {
    auto store = BatchStore::open(out_, "m");
    for (const int64_t line : {12, 3, 7}) {
      ASSERT_TRUE(store->append(line, "answer " + std::to_string(line)).ok());
    }
    whole = read(out_ + ".partial");
  }
  for (size_t size = 0; size <= whole.size(); ++size) {
    write(out_ + ".partial", whole.substr(0, size));
    auto store = BatchStore::open(out_, "m");
    ASSERT_TRUE(store.ok()) << size;
    const auto ends = std::count(whole.begin(), whole.begin() + static_cast<int64_t>(size), '\n');
    EXPECT_EQ(store->rows(), ends) << size;
    for (const int64_t line : {3, 7, 12}) {
      if (store->has(line)) continue;
      ASSERT_TRUE(store->append(line, "answer " + std::to_string(line)).ok());
    }
    if (size == whole.size()) {
      ASSERT_TRUE(store->finish().ok());
    }
  }
  EXPECT_EQ(read(out_), "answer 3\nanswer 7\nanswer 12\n");
}

TEST_F(BatchFiles, TheSurveyCountsRowsAndNamesTheBytes) {
  const std::string row = R"({"method":"POST","url":"/v1/completions","body":{},"custom_id":)";
  write(in_, "\xEF\xBB\xBF" + row + "\"a\"}\r\n\r\nnull\n" + row + "5}\n" + row + "\"b\"}");
  const auto survey = survey_batch(in_, 1000);
  ASSERT_TRUE(survey.ok());
  EXPECT_EQ(survey->rows, 4);
  write(out_, "abc");
  EXPECT_EQ(*sha256_of_file(out_),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_NE(survey->sha256, *sha256_of_file(out_));
  EXPECT_FALSE(survey_batch(folder_, 1000).ok()) << "a folder cannot be read";
  EXPECT_FALSE(survey_batch(in_ + "x", 1000).ok());
}

TEST_F(BatchFiles, LinesAreFoundWhereverTheReadsAreCut) {
  // Lines whose ends fall on, before and behind the edges of the reader's chunks.
  for (const size_t length : {(256u << 10) - 2, (256u << 10) - 1, 256u << 10, (256u << 10) + 1}) {
    const auto all = lines(std::string(length, 'x') + "\nb\r\n" + std::string(length, 'y'), length);
    ASSERT_EQ(all.size(), 3u) << length;
    EXPECT_EQ(all[0].text, std::string(length, 'x'));
    EXPECT_EQ(all[1].text, "b");
    EXPECT_EQ(all[2].text, std::string(length, 'y'));
    const auto cut = lines(std::string(length, 'x') + "\nb\n", length - 1);
    ASSERT_EQ(cut.size(), 2u);
    EXPECT_TRUE(cut[0].too_long && cut[0].text.empty());
    EXPECT_EQ(cut[1].text, "b");
  }
}

TEST_F(BatchFiles, ACrashBetweenRenameAndCleaningIsMended) {
  {
    auto store = BatchStore::open(out_, "m");
    EXPECT_TRUE(store->append(1, "one").ok());
  }
  write(out_, "one\n");
  auto store = BatchStore::open(out_, "m");
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE(store->has(1));
  EXPECT_TRUE(store->finish().ok());
  EXPECT_EQ(read(out_), "one\n");
}

}  // namespace
}  // namespace millrace::app
