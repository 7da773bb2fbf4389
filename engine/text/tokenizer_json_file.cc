#include "engine/text/tokenizer_json_file.h"

#include "absl/strings/str_format.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

// Follows the parser and takes out the members of model.vocab and model.merges.
class Harvester {
 public:
  explicit Harvester(TokenizerJsonFile& file) : file_(file) {}

  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) return false;
    if (event == json::parse_event_t::key) return key(depth, value);
    if (!in_model_) return true;
    if (section_ == Section::vocab && depth == 3 && event == json::parse_event_t::value) {
      vocab_entry(value);
    } else if (section_ == Section::merges && depth == 3) {
      if (event == json::parse_event_t::value) {
        merge_line(value);
        return false;
      }
      if (event == json::parse_event_t::array_end) {
        merge_pair(value);
        return false;
      }
    }
    return true;
  }

  const std::string& error() const { return error_; }

 private:
  enum class Section { none, vocab, merges };

  bool key(int depth, json& value) {
    if (depth == 1) {
      in_model_ = value == "model";
      section_ = Section::none;
    } else if (depth == 2 && in_model_) {
      section_ = value == "vocab"    ? Section::vocab
                 : value == "merges" ? Section::merges
                                     : Section::none;
    } else if (depth == 3 && in_model_ && section_ == Section::vocab) {
      name_ = std::move(value.get_ref<std::string&>());
      return false;  // the value is still announced, but not stored
    }
    return true;
  }

  void vocab_entry(const json& value) {
    // Elements of an array have no name; such vocabularies belong to other model types.
    if (!value.is_number_integer()) {
      fail(absl::StrFormat("the vocabulary entry \"%s\" has no integer id", name_));
      return;
    }
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX;
    file_.vocab.emplace_back(std::move(name_), huge ? -1 : value.get<int64_t>());
    name_.clear();
  }

  void merge_line(const json& value) {
    const std::string* const line = value.get_ptr<const std::string*>();
    const size_t space = line == nullptr ? std::string::npos : line->find(' ');
    if (space == std::string::npos || line->find(' ', space + 1) != std::string::npos) {
      fail(absl::StrFormat("merge %d is not two tokens with a space between them",
                           file_.merges.size()));
      return;
    }
    file_.merges.emplace_back(line->substr(0, space), line->substr(space + 1));
  }

  void merge_pair(const json& value) {
    if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_string()) {
      fail(absl::StrFormat("merge %d is not a pair of tokens", file_.merges.size()));
      return;
    }
    file_.merges.emplace_back(value[0].get<std::string>(), value[1].get<std::string>());
  }

  void fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }

  TokenizerJsonFile& file_;
  bool in_model_ = false;
  Section section_ = Section::none;
  std::string name_;
  std::string error_;
};

}  // namespace

StatusOr<TokenizerJsonFile> read_tokenizer_json(std::string_view text) {
  TokenizerJsonFile file;
  Harvester harvester(file);
  file.root = json::parse(
      text.begin(), text.end(),
      [&](int depth, json::parse_event_t event, json& value) {
        return harvester(depth, event, value);
      },
      /*allow_exceptions=*/false);
  if (!file.root.is_object()) {
    return absl::InvalidArgumentError("tokenizer.json is not a valid JSON object");
  }
  if (!harvester.error().empty()) {
    return absl::InvalidArgumentError("tokenizer.json: " + harvester.error());
  }
  return file;
}

}  // namespace millrace
