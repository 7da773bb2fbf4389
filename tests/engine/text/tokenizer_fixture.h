// Small tokenizers for tests. Every byte is a token, so anything can be encoded; merges and special
// tokens come on top.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"

namespace millrace {

// Ids 0..255: the bytes in order. Then the result of each merge, then the control tokens.
// `merges` are written in the byte alphabet, "h i" or "Ġ w".
GgufVocabulary byte_level_vocabulary(std::string pre, const std::vector<std::string>& merges,
                                     const std::vector<std::string>& control);

// Ids 0 <unk>, 1 <s>, 2 </s>, 3..258 the bytes as <0xHH>, then `pieces` with their scores.
GgufVocabulary sentencepiece_vocabulary(const std::vector<std::pair<std::string, float>>& pieces);

std::unique_ptr<Tokenizer> load_gguf(GgufVocabulary vocabulary);

// The bytes of all tokens, cut at the tokens: {"he", "llo"}.
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                   const EncodeOptions& options = {.add_special_tokens = false});

}  // namespace millrace
