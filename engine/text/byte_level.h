// The byte alphabet of byte-level vocabularies: GPT-2 writes every byte as one printable character
// (printable Latin-1 as itself, the others as U+0100 and up). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

char32_t byte_to_char(uint8_t byte);
std::optional<uint8_t> char_to_byte(char32_t code);

// The bytes that a vocabulary entry stands for; the entry itself if it has a character that is not
// in the alphabet.
std::string byte_level_bytes(std::string_view text);

// The value of an entry that is written <0xHH>.
std::optional<uint8_t> byte_of_hex_token(std::string_view text);

}  // namespace millrace
