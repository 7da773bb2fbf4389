#include "engine/text/bpe_tokenizer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kMaxIdleScratches = 8;
constexpr size_t kKeptScratchBytes = 1 << 20;

template <typename T>
void release_if_large(std::vector<T>& buffer) {
  if (buffer.capacity() * sizeof(T) > kKeptScratchBytes) std::vector<T>().swap(buffer);
}

}  // namespace

struct BpeTokenizer::Scratch {
  WordCache cache;
  BpeMerger::Workspace workspace;
  std::vector<BpeSymbol> symbols;
  std::vector<Token> word_ids;
  SplitRegex::MatchState match_state;

  // A single huge text must not keep its memory for ever.
  void trim() {
    release_if_large(workspace.ranks);
    release_if_large(workspace.next);
    release_if_large(workspace.previous);
    release_if_large(workspace.heap);
    release_if_large(symbols);
    release_if_large(word_ids);
  }
};

class BpeTokenizer::ScratchLease {
 public:
  explicit ScratchLease(const BpeTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (!owner.idle_.empty()) {
      scratch_ = std::move(owner.idle_.back());
      owner.idle_.pop_back();
    }
  }
  ~ScratchLease() {
    if (scratch_ == nullptr) return;
    scratch_->trim();
    const std::lock_guard lock(owner_.mutex_);
    if (owner_.idle_.size() < kMaxIdleScratches) owner_.idle_.push_back(std::move(scratch_));
  }
  Scratch& get() {
    if (scratch_ == nullptr) scratch_ = std::make_unique<Scratch>();
    return *scratch_;
  }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

// One call of encode.
class BpeTokenizer::Encoding final : public WordSink {
 public:
  Encoding(const BpeParts& parts, Scratch& scratch, std::vector<Token>& out)
      : parts_(parts), scratch_(scratch), out_(out) {}

  void text(std::string_view text, bool parse_added, std::span<const ByteRange> literal);
  void word(std::string_view word) override;

 private:
  void piece(std::string_view text, size_t begin, size_t end, bool parse_added,
             std::span<const ByteRange> literal);
  void normalize_and_split(std::string_view text);
  void split(std::string_view text);
  void cut(std::string_view text);
  void compute(std::string_view word);
  void byte_symbols(std::string_view word);
  void char_symbols(std::string_view word);
  bool push_bytes(std::string_view word, uint32_t begin, uint32_t length);
  void resolve(std::string_view word);
  void unknown(std::vector<Token>& ids);
  bool prefix_wanted(PrefixRule rule) const;

  const BpeParts& parts_;
  Scratch& scratch_;
  std::vector<Token>& out_;
  bool at_start_ = true;   // nothing of the text is encoded yet
  Token last_added_ = -1;  // the added token directly before the next piece
  bool after_unknown_ = false;
};

void BpeTokenizer::Encoding::text(std::string_view text, bool parse_added,
                                  std::span<const ByteRange> literal) {
  size_t done = 0;
  size_t next_literal = 0;
  while (parse_added && done < text.size()) {
    const auto match = parts_.added.find(text, done, literal, next_literal);
    if (!match) break;
    piece(text, done, match->begin, parse_added, literal);
    out_.push_back(match->id);
    last_added_ = match->id;
    at_start_ = false;
    done = match->end;
  }
  piece(text, done, text.size(), parse_added, literal);
}

// Text between the added tokens that are found before normalization.
void BpeTokenizer::Encoding::piece(std::string_view text, size_t begin, size_t end,
                                   bool parse_added, std::span<const ByteRange> literal) {
  if (begin >= end) return;
  const std::string_view piece = text.substr(begin, end - begin);
  if (!parse_added || parts_.normalized_added.empty()) return normalize_and_split(piece);

  const auto first = std::partition_point(literal.begin(), literal.end(),
                                          [&](const ByteRange& r) { return r.end <= begin; });
  const bool has_literal = first != literal.end() && first->begin < end;
  std::string normalized;
  std::string_view source = piece;
  std::vector<ByteRange> ranges;
  if (has_literal) {
    for (auto r = first; r != literal.end() && r->begin < end; ++r) {
      ranges.push_back({std::max(r->begin, begin) - begin, std::min(r->end, end) - begin});
    }
  } else if (!parts_.normalizer.empty()) {
    normalized = parts_.normalizer.apply(piece, prefix_wanted(parts_.normalizer_prefix),
                                         scratch_.match_state);
    source = normalized;
  }
  const AddedTokens& tokens = has_literal ? parts_.unnormalized_added : parts_.normalized_added;
  const auto emit = [&](size_t from, size_t to) {
    if (from >= to) return;
    const std::string_view part = source.substr(from, to - from);
    if (has_literal) return normalize_and_split(part);
    split(part);
  };
  size_t done = 0;
  size_t next_literal = 0;
  while (const auto match = tokens.find(source, done, ranges, next_literal)) {
    emit(done, match->begin);
    out_.push_back(match->id);
    last_added_ = match->id;
    at_start_ = false;
    done = match->end;
  }
  emit(done, source.size());
}

bool BpeTokenizer::Encoding::prefix_wanted(PrefixRule rule) const {
  switch (rule) {
    case PrefixRule::every_piece: return true;
    case PrefixRule::text_start: return at_start_;
    case PrefixRule::start_and_control:
      return at_start_ || parts_.vocabulary.kind(last_added_) == TokenKind::control;
  }
  return true;
}

void BpeTokenizer::Encoding::normalize_and_split(std::string_view text) {
  if (parts_.normalizer.empty()) return split(text);
  split(
      parts_.normalizer.apply(text, prefix_wanted(parts_.normalizer_prefix), scratch_.match_state));
}

void BpeTokenizer::Encoding::split(std::string_view text) {
  std::string rewritten;
  if (!parts_.rewriter.empty()) {
    rewritten =
        parts_.rewriter.apply(text, prefix_wanted(parts_.rewriter_prefix), scratch_.match_state);
    text = rewritten;
  }
  at_start_ = false;
  after_unknown_ = false;
  if (parts_.cut_at_marker && parts_.pre_tokenizer.empty()) return cut(text);
  parts_.pre_tokenizer.split(text, scratch_.match_state, *this);
}

// Words are cut in front of every marker that follows another character.
void BpeTokenizer::Encoding::cut(std::string_view text) {
  size_t begin = 0;
  size_t from = 0;
  while (begin < text.size()) {
    while (text.substr(from, kSpaceMarker.size()) == kSpaceMarker) from += kSpaceMarker.size();
    const size_t end = std::min(text.find(kSpaceMarker, from), text.size());
    word(text.substr(begin, end - begin));
    begin = from = end;
  }
}

void BpeTokenizer::Encoding::word(std::string_view word) {
  if (word.size() > WordCache::kMaxBytes) {
    compute(word);
    out_.insert(out_.end(), scratch_.word_ids.begin(), scratch_.word_ids.end());
    return;
  }
  WordCache::Entry& entry = scratch_.cache.entry(word);
  if (!entry.holds(word)) {
    compute(word);
    out_.insert(out_.end(), scratch_.word_ids.begin(), scratch_.word_ids.end());
    if (!parts_.fuse_across_words || parts_.unknown < 0 ||
        std::find(scratch_.word_ids.begin(), scratch_.word_ids.end(), parts_.unknown) ==
            scratch_.word_ids.end()) {
      entry.fill(word, scratch_.word_ids);
    }
    return;
  }
  after_unknown_ = false;
  const std::span<const Token> ids = entry.ids();
  out_.insert(out_.end(), ids.begin(), ids.end());
}

// Leaves the word's tokens in scratch_.word_ids.
void BpeTokenizer::Encoding::compute(std::string_view word) {
  scratch_.word_ids.clear();
  if (!parts_.fuse_across_words) after_unknown_ = false;
  if (parts_.ignore_merges) {
    const Token whole =
        parts_.byte_level ? parts_.vocabulary.find_bytes(word) : parts_.vocabulary.find(word);
    if (whole >= 0 && parts_.vocabulary.kind(whole) == TokenKind::normal) {
      scratch_.word_ids.push_back(whole);
      return;
    }
  }
  scratch_.symbols.clear();
  if (parts_.byte_level) {
    byte_symbols(word);
  } else {
    char_symbols(word);
  }
  parts_.merger.merge(scratch_.symbols, scratch_.workspace);
  resolve(word);
}

void BpeTokenizer::Encoding::byte_symbols(std::string_view word) {
  for (uint32_t i = 0; i < word.size(); ++i) {
    scratch_.symbols.push_back({parts_.byte_tokens[static_cast<uint8_t>(word[i])], i});
  }
}

// Characters that are no symbol become their bytes' tokens where all of them exist.
void BpeTokenizer::Encoding::char_symbols(std::string_view word) {
  const char* const begin = word.data();
  const char* const end = begin + word.size();
  for (const char* p = begin; p < end;) {
    const Utf8Char c = decode_utf8(p, end);
    const auto at = static_cast<uint32_t>(p - begin);
    const auto symbol = c.state == Utf8State::complete ? parts_.char_symbols.find(c.code)
                                                       : parts_.char_symbols.end();
    if (symbol != parts_.char_symbols.end()) {
      scratch_.symbols.push_back({symbol->second, at});
    } else if (!push_bytes(word, at, c.length)) {
      scratch_.symbols.push_back({-1, at});
    }
    p += c.length;
  }
}

bool BpeTokenizer::Encoding::push_bytes(std::string_view word, uint32_t begin, uint32_t length) {
  for (uint32_t i = begin; i < begin + length; ++i) {
    if (parts_.byte_tokens[static_cast<uint8_t>(word[i])] < 0) return false;
  }
  for (uint32_t i = begin; i < begin + length; ++i) {
    scratch_.symbols.push_back({parts_.byte_tokens[static_cast<uint8_t>(word[i])], i});
  }
  return true;
}

void BpeTokenizer::Encoding::resolve(std::string_view word) {
  std::vector<Token>& ids = scratch_.word_ids;
  for (size_t i = 0; i < scratch_.symbols.size(); ++i) {
    const BpeSymbol symbol = scratch_.symbols[i];
    if (symbol.id >= 0 && symbol.id < parts_.vocabulary.size()) {
      ids.push_back(symbol.id);
      after_unknown_ = false;
      continue;
    }
    const size_t end =
        i + 1 < scratch_.symbols.size() ? scratch_.symbols[i + 1].begin : word.size();
    const size_t size_before = ids.size();
    for (size_t at = symbol.begin; at < end && !parts_.byte_level; ++at) {
      const Token token = parts_.byte_tokens[static_cast<uint8_t>(word[at])];
      if (token < 0) {
        ids.resize(size_before);
        break;
      }
      ids.push_back(token);
    }
    if (ids.size() == size_before) {
      unknown(ids);
    } else {
      after_unknown_ = false;
    }
  }
}

void BpeTokenizer::Encoding::unknown(std::vector<Token>& ids) {
  if (parts_.unknown < 0 || (after_unknown_ && parts_.fuse_unknown)) return;
  ids.push_back(parts_.unknown);
  after_unknown_ = true;
}

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : parts_(std::move(parts)), end_tokens_(find_end_tokens(parts_.vocabulary, parts_.eos)) {}
BpeTokenizer::~BpeTokenizer() = default;

std::vector<Token> BpeTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<Token> out;
  out.reserve(text.size() / 3 + 8);
  if (options.add_special_tokens) out = parts_.prefix;
  if (!text.empty()) {
    ScratchLease lease(*this);
    Encoding encoding(parts_, lease.get(), out);
    if (parts_.replace_ill_formed && !is_well_formed(text)) {
      // Positions shift, so what is data is found anew: piece by piece, each repaired by itself.
      std::string repaired;
      std::vector<ByteRange> literal;
      size_t done = 0;
      for (const ByteRange& range : options.literal) {
        repaired += to_well_formed(text.substr(done, range.begin - done));
        const size_t begin = repaired.size();
        repaired += to_well_formed(text.substr(range.begin, range.end - range.begin));
        literal.push_back({begin, repaired.size()});
        done = range.end;
      }
      repaired += to_well_formed(text.substr(done));
      encoding.text(repaired, options.parse_special, literal);
    } else {
      encoding.text(text, options.parse_special, options.literal);
    }
  }
  if (options.add_special_tokens) {
    out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
  }
  return out;
}

std::string_view BpeTokenizer::token_bytes(Token token) const {
  return parts_.vocabulary.bytes(token);
}

std::string_view BpeTokenizer::first_token_bytes(Token token) const {
  std::string_view bytes = parts_.vocabulary.bytes(token);
  const TokenKind kind = parts_.vocabulary.kind(token);
  if (kind == TokenKind::added || kind == TokenKind::control) return bytes;
  if (parts_.first_token == FirstTokenRule::one_space && bytes.starts_with(' ')) {
    bytes.remove_prefix(1);
  }
  while (parts_.first_token == FirstTokenRule::all_spaces && bytes.starts_with(' ')) {
    bytes.remove_prefix(1);
  }
  return bytes;
}

bool BpeTokenizer::is_special(Token token) const { return parts_.vocabulary.is_special(token); }

std::optional<Token> BpeTokenizer::find(std::string_view token_text) const {
  const Token token = parts_.vocabulary.find(token_text);
  return token < 0 ? std::nullopt : std::optional<Token>(token);
}

std::string_view BpeTokenizer::token_text(Token token) const {
  return parts_.vocabulary.text(token);
}

std::vector<Token> BpeTokenizer::holes() const {
  std::vector<Token> holes;
  for (Token id = 0; id < size(); ++id) {
    if (!parts_.vocabulary.contains(id)) holes.push_back(id);
  }
  return holes;
}

std::optional<Token> BpeTokenizer::bos() const {
  return parts_.vocabulary.contains(parts_.bos) ? std::optional<Token>(parts_.bos) : std::nullopt;
}

std::optional<Token> BpeTokenizer::eos() const {
  return parts_.vocabulary.contains(parts_.eos) ? std::optional<Token>(parts_.eos) : std::nullopt;
}

std::vector<Token> find_end_tokens(const Vocabulary& vocabulary, Token eos) {
  static constexpr std::string_view kNames[] = {
      "<|im_end|>",
      "<|eot_id|>",
      "<|eom_id|>",
      "<|end|>",
      "<|eot|>",
      "<end_of_turn>",
      "<turn|>",
      "<|endoftext|>",
      "<|end_of_text|>",
      "<|return|>",
      "<|call|>",
      "<|EOT|>",
      "<EOT>",
      "_<EOT>",
      "<|END_OF_TURN_TOKEN|>",
      "<|end_of_turn|>",
      "<|endofturn|>",
      "<|eos|>",
      "[EOS]",
      "<\xEF\xBD\x9C"
      "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
      "<|end\xE2\x96\x81of\xE2\x96\x81sentence|>"};
  std::vector<Token> tokens;
  if (vocabulary.contains(eos)) tokens.push_back(eos);
  // In the harmony format <|end|> only ends a message, not the answer.
  const bool harmony = vocabulary.find("<|return|>") >= 0 && vocabulary.find("<|call|>") >= 0;
  for (const std::string_view name : kNames) {
    const Token token = vocabulary.find(name);
    const TokenKind kind = vocabulary.kind(token);
    if (kind != TokenKind::added && kind != TokenKind::control) continue;
    if (harmony && name == "<|end|>") continue;
    if (token != eos) tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

bool can_cut_at_marker(const Vocabulary& vocabulary) {
  for (Token id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) != TokenKind::normal) continue;
    std::string_view text = vocabulary.text(id);
    while (text.starts_with(kSpaceMarker)) text.remove_prefix(kSpaceMarker.size());
    if (text.find(kSpaceMarker) != std::string_view::npos) return false;
  }
  return true;
}

std::string marker_to_spaces(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t at = text.find(kSpaceMarker);
    out += text.substr(0, at);
    if (at == std::string_view::npos) break;
    out += ' ';
    text.remove_prefix(at + kSpaceMarker.size());
  }
  return out;
}

}  // namespace millrace
