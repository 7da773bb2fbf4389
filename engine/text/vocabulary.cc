#include "engine/text/vocabulary.h"

#include "absl/strings/str_format.h"

namespace millrace {

Status Vocabulary::check_id(int64_t id, size_t num_entries) {
  const int64_t limit = 65536 + 8 * static_cast<int64_t>(num_entries);
  if (id >= 0 && id < limit && id < (1 << 24)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the vocabulary has %d entries and a token id of %d, which is out of range",
                      num_entries, id));
}

void Vocabulary::set(Token id, std::string_view text, std::string_view bytes, TokenKind kind) {
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(id + 1);
  Entry& entry = entries_[id];
  entry.text = static_cast<uint32_t>(blob_.size());
  entry.text_size = static_cast<uint32_t>(text.size());
  blob_ += text;
  entry.bytes = entry.text;
  entry.bytes_size = static_cast<uint32_t>(bytes.size());
  if (bytes != text) {
    entry.bytes = static_cast<uint32_t>(blob_.size());
    blob_ += bytes;
  }
  entry.kind = kind;
  entry.special = kind == TokenKind::control;
}

void Vocabulary::finish() {
  blob_.shrink_to_fit();
  entries_.shrink_to_fit();
  by_text_.reserve(entries_.size());
  const auto text_of = [this](int32_t id) { return text(id); };
  for (Token id = 0; id < size(); ++id) {
    if (contains(id)) by_text_.insert(id, text_of);
  }
}

void Vocabulary::index_bytes() {
  by_bytes_.reserve(entries_.size());
  const auto bytes_of = [this](int32_t id) { return bytes(id); };
  for (Token id = 0; id < size(); ++id) {
    if (kind(id) == TokenKind::normal) by_bytes_.insert(id, bytes_of);
  }
}

Token Vocabulary::find(std::string_view text) const {
  return by_text_.find(text, [this](int32_t id) { return this->text(id); });
}

Token Vocabulary::find_bytes(std::string_view bytes) const {
  return by_bytes_.find(bytes, [this](int32_t id) { return this->bytes(id); });
}

}  // namespace millrace
