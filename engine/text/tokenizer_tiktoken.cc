// Tokenizer::from_tiktoken and from_tekken_json: vocabularies whose entries' order is the order of
// merging.
#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/text/base64.h"
#include "engine/text/bpe_tokenizer.h"
#include "engine/text/derived_merges.h"
#include "engine/text/json_access.h"

namespace millrace {
namespace {

using nlohmann::json;

void set_special(const std::string& text, Token id, bool control, BpeParts& parts) {
  parts.vocabulary.set(id, text, text, control ? TokenKind::control : TokenKind::added);
  parts.added.add({.content = text, .id = id});
}

StatusOr<std::unique_ptr<Tokenizer>> finish(BpeParts parts) {
  parts.ignore_merges = true;
  parts.vocabulary.finish();
  parts.vocabulary.index_bytes();
  MR_RETURN_IF_ERROR(derive_byte_merges(parts));
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(parts)));
}

Status add_rank_line(std::string_view line, size_t number, size_t num_lines,
                     Vocabulary& vocabulary) {
  const size_t space = line.find(' ');
  const auto bytes = decode_base64(line.substr(0, space));
  int64_t rank = -1;
  if (space != std::string_view::npos) {
    const auto [end, error] =
        std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    if (error != std::errc() || end != line.data() + line.size()) rank = -1;
  }
  if (!bytes || bytes->empty() || rank < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("line %d of the ranks is not \"base64 rank\"", number));
  }
  MR_RETURN_IF_ERROR(Vocabulary::check_id(rank, num_lines));
  vocabulary.set(static_cast<Token>(rank), *bytes, *bytes, TokenKind::normal);
  return absl::OkStatus();
}

// The special tokens of tekken files that list none.
constexpr std::string_view kTekkenSpecial[] = {"<unk>",
                                               "<s>",
                                               "</s>",
                                               "[INST]",
                                               "[/INST]",
                                               "[AVAILABLE_TOOLS]",
                                               "[/AVAILABLE_TOOLS]",
                                               "[TOOL_RESULTS]",
                                               "[/TOOL_RESULTS]",
                                               "[TOOL_CALLS]",
                                               "[IMG]",
                                               "<pad>",
                                               "[IMG_BREAK]",
                                               "[IMG_END]",
                                               "[PREFIX]",
                                               "[MIDDLE]",
                                               "[SUFFIX]",
                                               "[SYSTEM_PROMPT]",
                                               "[/SYSTEM_PROMPT]",
                                               "[TOOL_CONTENT]"};

struct TekkenEntry {
  int64_t rank = -1;
  std::string bytes;
};

// Takes the entries of the root's "vocab" list out while parsing, so that they never become values.
struct TekkenHarvester {
  std::vector<TekkenEntry> entries;
  bool in_vocab = false;
  bool malformed = false;

  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (depth > 16) return false;
    if (event == json::parse_event_t::key && depth == 1) in_vocab = value == "vocab";
    if (!in_vocab || depth != 2 || event != json::parse_event_t::object_end) return true;
    auto bytes = decode_base64(json_string(value, "token_bytes"));
    TekkenEntry entry = {json_int(value, "rank", -1), bytes ? std::move(*bytes) : std::string()};
    malformed = malformed || entry.rank < 0 || entry.bytes.empty();
    entries.push_back(std::move(entry));
    return false;
  }
};

Status add_tekken_special(const json& root, int64_t num_special, BpeParts& parts) {
  const json* const list = json_member(root, "special_tokens");
  if (list != nullptr && list->is_array()) {
    for (const json& item : *list) {
      const int64_t rank = json_int(item, "rank", -1);
      const std::string text = json_string(item, "token_str");
      if (rank < 0 || rank >= num_special || text.empty()) {
        return absl::InvalidArgumentError(
            "tekken.json: a special token needs a token_str and a rank below "
            "default_num_special_tokens");
      }
      set_special(text, static_cast<Token>(rank), json_bool(item, "is_control", true), parts);
    }
  } else {
    for (size_t i = 0; i < std::size(kTekkenSpecial) && static_cast<int64_t>(i) < num_special;
         ++i) {
      set_special(std::string(kTekkenSpecial[i]), static_cast<Token>(i), true, parts);
    }
  }
  for (Token id = 0; id < num_special; ++id) {
    if (!parts.vocabulary.contains(id)) {
      set_special(absl::StrFormat("<SPECIAL_%d>", id), id, true, parts);
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::from_tiktoken(
    std::string_view ranks, std::string_view pattern_name,
    std::span<const std::pair<std::string, Token>> special_tokens) {
  MR_ASSIGN_OR_RETURN(SplitStage stage, split_for_tiktoken(pattern_name));
  BpeParts parts;
  MR_RETURN_IF_ERROR(parts.pre_tokenizer.add(std::move(stage)));
  const size_t num_lines = std::count(ranks.begin(), ranks.end(), '\n') + 1;
  size_t number = 0;
  for (size_t begin = 0; begin < ranks.size();) {
    const size_t end = std::min(ranks.find('\n', begin), ranks.size());
    std::string_view line = ranks.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    MR_RETURN_IF_ERROR(add_rank_line(line, number, num_lines, parts.vocabulary));
  }
  for (const auto& [text, id] : special_tokens) {
    MR_RETURN_IF_ERROR(Vocabulary::check_id(id, num_lines));
    set_special(text, id, true, parts);
    if (text == "<|endoftext|>") parts.eos = id;
  }
  return finish(std::move(parts));
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::from_tekken_json(std::string_view text) {
  TekkenHarvester harvester;
  const json root = json::parse(
      text.begin(), text.end(),
      [&](int depth, json::parse_event_t event, json& value) {
        return harvester(depth, event, value);
      },
      /*allow_exceptions=*/false);
  const json* const config = json_member(root, "config");
  if (config == nullptr || harvester.malformed) {
    return absl::InvalidArgumentError(
        "tekken.json has no config, or an entry without rank and token_bytes");
  }
  const int64_t num_special = json_int(*config, "default_num_special_tokens", -1);
  const int64_t vocab_size = json_int(*config, "default_vocab_size", -1);
  if (num_special < 3 || vocab_size <= num_special || vocab_size > (1 << 24) ||
      vocab_size - num_special > static_cast<int64_t>(harvester.entries.size())) {
    return absl::InvalidArgumentError(
        "tekken.json: default_vocab_size and default_num_special_tokens do not fit the vocabulary");
  }
  MR_RETURN_IF_ERROR(Vocabulary::check_id(num_special, harvester.entries.size()));
  MR_ASSIGN_OR_RETURN(SplitStage stage, split_for_pattern(json_string(*config, "pattern")));
  BpeParts parts;
  MR_RETURN_IF_ERROR(parts.pre_tokenizer.add(std::move(stage)));
  MR_RETURN_IF_ERROR(add_tekken_special(root, num_special, parts));
  for (const TekkenEntry& entry : harvester.entries) {
    if (entry.rank >= vocab_size - num_special) continue;
    parts.vocabulary.set(static_cast<Token>(entry.rank + num_special), entry.bytes, entry.bytes,
                         TokenKind::normal);
  }
  parts.bos = 1;
  parts.eos = 2;
  parts.prefix = {parts.bos};
  return finish(std::move(parts));
}

}  // namespace millrace
