// Merge rules for vocabularies that list none: whichever two neighbours together are an entry may
// merge, and the entry's rank or score says which goes first. Called once, while loading.
#pragma once

#include <cstdint>
#include <span>

#include "engine/text/bpe_tokenizer.h"

namespace millrace {

inline constexpr size_t kMaxDerivedTokenBytes = 1024;

// Byte-level: the entries' order of ids is the order of merging (tiktoken). Fills byte_tokens and
// merger; the vocabulary must be finished and indexed by bytes. INVALID_ARGUMENT if a byte has no
// entry or an entry is longer than kMaxDerivedTokenBytes.
Status derive_byte_merges(BpeParts& parts);

// Characters: higher scores merge first (SentencePiece). `scores` has one value per id. Fills
// char_symbols and merger; the vocabulary must be finished.
Status derive_score_merges(std::span<const float> scores, BpeParts& parts);

}  // namespace millrace
