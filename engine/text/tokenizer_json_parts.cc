// The components of a tokenizer.json, one parser for each.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "engine/text/byte_level.h"
#include "engine/text/json_access.h"
#include "engine/text/tokenizer_json_file.h"
#include "engine/text/unicode.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 8;
constexpr size_t kMaxComponents = 64;
// A text may grow by this factor in all replacements together, so that a small file cannot ask for
// gigabytes.
constexpr size_t kMaxGrowth = 64;

Status unsupported(std::string_view what, const std::string& type, std::string_view supported) {
  return absl::UnimplementedError(
      absl::StrFormat("tokenizer.json: the %s \"%s\" is not supported; supported are %s",
                      std::string(what), type, std::string(supported)));
}

// Sequences, however nested, as one list. `list_name` is the member that holds a Sequence's parts.
Status flatten(const json* component, std::string_view what, const char* list_name, int depth,
               std::vector<const json*>& out) {
  if (component == nullptr) return absl::OkStatus();
  const std::string type = json_string(*component, "type");
  if (type != "Sequence") {
    out.push_back(component);
    return absl::OkStatus();
  }
  const json* const list = json_member(*component, list_name);
  if (list == nullptr || !list->is_array() || depth == kMaxNesting ||
      out.size() + list->size() > kMaxComponents) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tokenizer.json: a %s of type Sequence has no list, is nested more than %d "
                        "deep or has more than %d parts",
                        std::string(what), kMaxNesting, kMaxComponents));
  }
  for (const json& part : *list) {
    MR_RETURN_IF_ERROR(flatten(&part, what, list_name, depth + 1, out));
  }
  return absl::OkStatus();
}

StatusOr<NormalizeOp> parse_replace(const json& component) {
  NormalizeOp op;
  op.to = json_string(component, "content");
  const json* const pattern = json_member(component, "pattern");
  const json* const literal = pattern == nullptr ? nullptr : json_member(*pattern, "String");
  const json* const regex = pattern == nullptr ? nullptr : json_member(*pattern, "Regex");
  if (literal != nullptr && literal->is_string()) {
    op.kind = NormalizeOp::Kind::replace;
    op.from = literal->get<std::string>();
    return op;
  }
  if (regex == nullptr || !regex->is_string()) {
    return absl::InvalidArgumentError(
        "tokenizer.json: a Replace normalizer needs a pattern with a String or a Regex");
  }
  op.kind = NormalizeOp::Kind::replace_regex;
  MR_ASSIGN_OR_RETURN(op.regex, SplitRegex::compile(regex->get_ref<const std::string&>()));
  return op;
}

StatusOr<SplitBehavior> parse_behavior(const std::string& name) {
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return unsupported("split behavior", name,
                     "Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous");
}

Status add_split(const json& component, PreTokenizer& out) {
  const json* const pattern = json_member(component, "pattern");
  const json* const literal = pattern == nullptr ? nullptr : json_member(*pattern, "String");
  const json* const regex = pattern == nullptr ? nullptr : json_member(*pattern, "Regex");
  SplitStage stage;
  if (literal != nullptr && literal->is_string()) {
    stage.matcher = literal->get<std::string>();
  } else if (regex != nullptr && regex->is_string()) {
    MR_ASSIGN_OR_RETURN(stage, split_for_pattern(regex->get_ref<const std::string&>()));
  } else {
    return absl::InvalidArgumentError(
        "tokenizer.json: a Split pre-tokenizer needs a pattern with a String or a Regex");
  }
  MR_ASSIGN_OR_RETURN(stage.behavior, parse_behavior(json_string(component, "behavior")));
  stage.invert = json_bool(component, "invert", false);
  return out.add(std::move(stage));
}

Status add_metaspace(const json& component, bool first, BpeParts& parts) {
  if (!first || json_string(component, "replacement") != kSpaceMarker) {
    return absl::UnimplementedError(
        "tokenizer.json: a Metaspace pre-tokenizer is supported only in the first place and with "
        "the replacement U+2581");
  }
  const bool prefix = json_bool(component, "add_prefix_space", true);
  const std::string scheme = json_string(component, "prepend_scheme", prefix ? "always" : "never");
  parts.rewriter.add(
      {.kind = NormalizeOp::Kind::replace, .from = " ", .to = std::string(kSpaceMarker)});
  if (scheme == "always" || scheme == "first") {
    parts.rewriter.add({.kind = NormalizeOp::Kind::prepend_once, .to = std::string(kSpaceMarker)});
    parts.rewriter_prefix = scheme == "first" ? PrefixRule::text_start : PrefixRule::every_piece;
  } else if (scheme != "never") {
    return unsupported("prepend scheme", scheme, "always, first and never");
  }
  if (!json_bool(component, "split", true)) return absl::OkStatus();
  return parts.pre_tokenizer.add(
      {std::string(kSpaceMarker), SplitBehavior::merged_with_next, false});
}

Status add_byte_level(const json& component, bool first, bool last, BpeParts& parts) {
  const bool prefix = json_bool(component, "add_prefix_space", true);
  if (!last || (prefix && !first)) {
    return absl::UnimplementedError(
        "tokenizer.json: a ByteLevel pre-tokenizer is supported only in the last place, and with "
        "add_prefix_space only alone");
  }
  parts.byte_level = true;
  if (prefix) parts.rewriter.add({.kind = NormalizeOp::Kind::prepend_once, .to = " "});
  if (!json_bool(component, "use_regex", true)) return absl::OkStatus();
  return parts.pre_tokenizer.add({SplitRule{.kind = SplitRule::Kind::gpt2}});
}

Status add_pre_tokenizer(const json& component, bool first, bool last, BpeParts& parts) {
  const std::string type = json_string(component, "type");
  if (type == "ByteLevel") return add_byte_level(component, first, last, parts);
  if (type == "Metaspace") return add_metaspace(component, first, parts);
  if (type == "Split") return add_split(component, parts.pre_tokenizer);
  if (type == "Digits") {
    return parts.pre_tokenizer.add({digits_rule(json_bool(component, "individual_digits", false))});
  }
  if (type == "Punctuation") {
    MR_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                        parse_behavior(json_string(component, "behavior", "Isolated")));
    return parts.pre_tokenizer.add({punctuation_rule(), behavior});
  }
  if (type == "WhitespaceSplit") {
    const SplitRule space = {.kind = SplitRule::Kind::run, .set = {kWhiteSpace}};
    return parts.pre_tokenizer.add({space, SplitBehavior::removed});
  }
  if (type == "Whitespace") {
    // Here the reference counts the two joiners as word characters.
    MR_ASSIGN_OR_RETURN(
        auto regex, SplitRegex::compile("[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+"));
    return parts.pre_tokenizer.add({std::move(regex), SplitBehavior::removed, true});
  }
  return unsupported("pre-tokenizer", type,
                     "ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, "
                     "WhitespaceSplit and Sequence");
}

Status add_template(const json& component, BpeParts& parts) {
  const json* const single = json_member(component, "single");
  const json* const tokens = json_member(component, "special_tokens");
  bool before_text = true;
  for (const json& item : single != nullptr && single->is_array() ? *single : json::array()) {
    const json* const special = json_member(item, "SpecialToken");
    if (special == nullptr) {
      before_text = false;
      continue;
    }
    const std::string name = json_string(*special, "id");
    const json* const entry = tokens == nullptr ? nullptr : json_member(*tokens, name.c_str());
    const json* const ids = entry == nullptr ? nullptr : json_member(*entry, "ids");
    if (ids == nullptr || !ids->is_array()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tokenizer.json: the template's special token \"%s\" has no ids", name));
    }
    for (const json& id : *ids) {
      const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
      if (value < 0 || value >= parts.vocabulary.size()) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "tokenizer.json: the template's special token \"%s\" has an id that is no token",
            name));
      }
      (before_text ? parts.prefix : parts.suffix).push_back(static_cast<Token>(value));
    }
  }
  return absl::OkStatus();
}

// BertProcessing and RobertaProcessing: [name, id] in front and behind.
Status add_frame(const json& component, BpeParts& parts) {
  const auto id_of = [&](const char* name) -> int64_t {
    const json* const pair = json_member(component, name);
    const bool fits = pair != nullptr && pair->is_array() && pair->size() == 2;
    return fits && (*pair)[1].is_number_integer() ? (*pair)[1].get<int64_t>() : -1;
  };
  const int64_t cls = id_of("cls");
  const int64_t sep = id_of("sep");
  if (cls < 0 || sep < 0 || std::max(cls, sep) >= parts.vocabulary.size()) {
    return absl::InvalidArgumentError(
        "tokenizer.json: the post-processor's cls and sep must be tokens of the vocabulary");
  }
  parts.prefix.push_back(static_cast<Token>(cls));
  parts.suffix.insert(parts.suffix.begin(), static_cast<Token>(sep));
  return absl::OkStatus();
}

bool is_leading_space_strip(const json& component) {
  return json_string(component, "content") == " " && json_int(component, "start", 0) == 1 &&
         json_int(component, "stop", 0) == 0;
}

Status add_decoder(const json& component, DecoderRule& rule) {
  const std::string type = json_string(component, "type");
  if (type == "ByteLevel") {
    rule.byte_level = true;
  } else if (type == "ByteFallback") {
    rule.byte_fallback = true;
  } else if (type == "Replace") {
    const json* const pattern = json_member(component, "pattern");
    const std::string from = pattern == nullptr ? "" : json_string(*pattern, "String");
    if (from.empty()) {
      return absl::UnimplementedError(
          "tokenizer.json: a Replace decoder is supported only with a String pattern");
    }
    const std::string to = json_string(component, "content");
    if (to.size() > from.size()) {
      return absl::UnimplementedError(
          "tokenizer.json: a Replace decoder whose content is longer than its pattern is not "
          "supported");
    }
    rule.replacements.emplace_back(from, to);
  } else if (type == "Strip" && is_leading_space_strip(component)) {
    rule.first_token = FirstTokenRule::one_space;
  } else if (type == "Metaspace") {
    rule.replacements.emplace_back(json_string(component, "replacement", "\xE2\x96\x81"), " ");
    const bool prefix = json_bool(component, "add_prefix_space", true);
    const std::string scheme =
        json_string(component, "prepend_scheme", prefix ? "always" : "never");
    if (scheme != "never") rule.first_token = FirstTokenRule::all_spaces;
  } else if (type != "Fuse") {
    return unsupported("decoder", type,
                       "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip of one leading "
                       "space, and Sequence");
  }
  return absl::OkStatus();
}

}  // namespace

Status parse_normalizer(const json& root, Normalizer& normalizer) {
  using Kind = NormalizeOp::Kind;
  std::vector<const json*> parts;
  MR_RETURN_IF_ERROR(
      flatten(json_member(root, "normalizer"), "normalizer", "normalizers", 0, parts));
  size_t growth = 1;
  const auto grows = [&](const NormalizeOp& op) {
    const size_t from = std::max<size_t>(1, op.from.size());
    growth *= std::max<size_t>(1, (op.to.size() + from - 1) / from);
    if (growth <= kMaxGrowth) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrFormat(
        "tokenizer.json: the normalizer makes a text more than %d times as long", kMaxGrowth));
  };
  for (const json* part : parts) {
    const std::string type = json_string(*part, "type");
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      normalizer.add({.kind = type == "NFC"    ? Kind::nfc
                              : type == "NFD"  ? Kind::nfd
                              : type == "NFKC" ? Kind::nfkc
                                               : Kind::nfkd});
    } else if (type == "Prepend") {
      NormalizeOp op = {.kind = Kind::prepend, .to = json_string(*part, "prepend")};
      MR_RETURN_IF_ERROR(grows(op));
      normalizer.add(std::move(op));
    } else if (type == "Replace") {
      MR_ASSIGN_OR_RETURN(NormalizeOp op, parse_replace(*part));
      MR_RETURN_IF_ERROR(grows(op));
      normalizer.add(std::move(op));
    } else if (type == "Strip") {
      normalizer.add({.kind = Kind::strip,
                      .left = json_bool(*part, "strip_left", true),
                      .right = json_bool(*part, "strip_right", true)});
    } else {
      return unsupported("normalizer", type,
                         "NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip and Sequence");
    }
  }
  return absl::OkStatus();
}

Status parse_pre_tokenizer(const json& root, BpeParts& parts) {
  std::vector<const json*> list;
  MR_RETURN_IF_ERROR(
      flatten(json_member(root, "pre_tokenizer"), "pre-tokenizer", "pretokenizers", 0, list));
  parts.byte_level = false;
  for (size_t i = 0; i < list.size(); ++i) {
    MR_RETURN_IF_ERROR(add_pre_tokenizer(*list[i], i == 0, i + 1 == list.size(), parts));
  }
  return absl::OkStatus();
}

StatusOr<bool> parse_post_processor(const json& root, BpeParts& parts) {
  std::vector<const json*> list;
  MR_RETURN_IF_ERROR(
      flatten(json_member(root, "post_processor"), "post-processor", "processors", 0, list));
  bool has_template = false;
  for (const json* component : list) {
    const std::string type = json_string(*component, "type");
    if (type == "TemplateProcessing") {
      MR_RETURN_IF_ERROR(add_template(*component, parts));
      has_template = true;
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      MR_RETURN_IF_ERROR(add_frame(*component, parts));
      has_template = true;
    } else if (type != "ByteLevel") {
      return unsupported("post-processor", type,
                         "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and "
                         "Sequence");
    }
  }
  return has_template;
}

StatusOr<DecoderRule> parse_decoder(const json& root) {
  std::vector<const json*> list;
  MR_RETURN_IF_ERROR(flatten(json_member(root, "decoder"), "decoder", "decoders", 0, list));
  if (list.empty()) {
    return absl::UnimplementedError(
        "tokenizer.json: a tokenizer without a decoder is not supported");
  }
  DecoderRule rule;
  for (const json* component : list) MR_RETURN_IF_ERROR(add_decoder(*component, rule));
  return rule;
}

std::string DecoderRule::bytes_of(std::string_view token_text) const {
  if (byte_fallback) {
    if (const auto byte = byte_of_hex_token(token_text)) return {static_cast<char>(*byte)};
  }
  std::string bytes = byte_level ? byte_level_bytes(token_text) : std::string(token_text);
  for (const auto& [from, to] : replacements) {
    if (from.empty()) continue;
    for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size()) {
      bytes.replace(at, from.size(), to);
    }
  }
  return bytes;
}

}  // namespace millrace
