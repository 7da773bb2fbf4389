// Answers JSON lines about one tokenizer, for the judges in tests/judges: load it, encode, decode.
//   {"op":"load","kind":"tokenizer_json|sentencepiece|tekken|tiktoken|gguf_json","path":...}
//   {"op":"encode","text":...,"add_special":false,"parse_special":true,"literal":[[begin,end]]}
//   {"op":"decode","ids":[...],"skip":false}
//   {"op":"time","text":...,"repeat":N}
// An answer is {"error":...} or what was asked for.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"

namespace millrace {
namespace {

using nlohmann::json;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

GgufVocabulary gguf_vocabulary(const json& source) {
  GgufVocabulary vocabulary;
  vocabulary.model = source.value("model", "");
  vocabulary.pre = source.value("pre", "");
  vocabulary.tokens = source.at("tokens").get<std::vector<std::string>>();
  vocabulary.scores = source.value("scores", std::vector<float>());
  vocabulary.types = source.value("types", std::vector<int32_t>());
  vocabulary.merges = source.value("merges", std::vector<std::string>());
  vocabulary.bos = source.value("bos", -1);
  vocabulary.eos = source.value("eos", -1);
  vocabulary.unk = source.value("unk", -1);
  if (source.contains("add_bos")) vocabulary.add_bos = source["add_bos"].get<bool>();
  if (source.contains("add_space_prefix")) {
    vocabulary.add_space_prefix = source["add_space_prefix"].get<bool>();
  }
  return vocabulary;
}

class Judge {
 public:
  json answer(const json& question) {
    const std::string op = question.value("op", "");
    if (op == "load") return load(question);
    if (tokenizer_ == nullptr) return {{"error", "no tokenizer is loaded"}};
    if (op == "encode") return encode(question);
    if (op == "decode") return decode(question);
    if (op == "time") return time(question);
    return {{"error", "unknown op"}};
  }

 private:
  json load(const json& question) {
    const std::string kind = question.value("kind", "");
    const std::string text = read_file(question.value("path", ""));
    json vocabulary;
    if (kind == "gguf_json") vocabulary = json::parse(text);
    const auto start = std::chrono::steady_clock::now();
    StatusOr<std::unique_ptr<Tokenizer>> loaded = absl::InvalidArgumentError("unknown kind");
    if (kind == "tokenizer_json") {
      loaded = Tokenizer::from_tokenizer_json(text, question.value("config", ""));
    } else if (kind == "sentencepiece") {
      loaded = Tokenizer::from_sentencepiece(text);
    } else if (kind == "tekken") {
      loaded = Tokenizer::from_tekken_json(text);
    } else if (kind == "tiktoken") {
      const auto special = question.value("special", std::vector<std::pair<std::string, Token>>());
      loaded = Tokenizer::from_tiktoken(text, question.value("pattern", ""), special);
    } else if (kind == "gguf_json") {
      loaded = Tokenizer::from_gguf(gguf_vocabulary(vocabulary));
    }
    if (!loaded.ok()) return {{"error", status_message(loaded.status())}};
    tokenizer_ = *std::move(loaded);
    return {{"seconds", seconds_since(start)},
            {"size", tokenizer_->size()},
            {"end_tokens", tokenizer_->end_tokens()}};
  }

  json encode(const json& question) const {
    const std::string text = question.value("text", "");
    std::vector<ByteRange> literal;
    for (const json& range : question.value("literal", json::array())) {
      literal.push_back({range[0], range[1]});
    }
    return {{"ids",
             tokenizer_->encode(text, {.add_special_tokens = question.value("add_special", false),
                                       .parse_special = question.value("parse_special", true),
                                       .literal = literal})}};
  }

  json decode(const json& question) const {
    const auto ids = question.at("ids").get<std::vector<Token>>();
    const bool skip = question.value("skip", false);
    Detokenizer detokenizer(*tokenizer_, {.skip_special_tokens = skip});
    std::string stream;
    for (const Token id : ids) stream += detokenizer.push(id);
    stream += detokenizer.finish();
    return {{"text", tokenizer_->decode(ids, skip)}, {"stream", stream}};
  }

  json time(const json& question) const {
    const std::string text = question.value("text", "");
    double best = 1e9;
    size_t num_ids = 0;
    for (int i = 0; i < question.value("repeat", 1); ++i) {
      const auto start = std::chrono::steady_clock::now();
      num_ids = tokenizer_->encode(text).size();
      best = std::min(best, seconds_since(start));
    }
    return {{"seconds", best}, {"num_ids", num_ids}, {"bytes", text.size()}};
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace
}  // namespace millrace

int main() {
  millrace::Judge judge;
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json question = nlohmann::json::parse(line, nullptr, false);
    const nlohmann::json answer =
        question.is_object() ? judge.answer(question)
                             : nlohmann::json({{"error", "the line is not a JSON object"}});
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
