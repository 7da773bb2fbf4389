#include "engine/text/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

std::string times(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += kFffd;
  return out;
}

// One U+FFFD for each maximal ill-formed part, as browsers count them.
TEST(Unicode, ReplacesEachMaximalIllFormedPart) {
  EXPECT_EQ(to_well_formed("\xE4\xBD"), times(1));
  EXPECT_EQ(to_well_formed("\xC0\x80"), times(2));
  EXPECT_EQ(to_well_formed("\xED\xA0\x80"), times(3));
  EXPECT_EQ(to_well_formed("\xF4\x90\x80\x80"), times(4));
  EXPECT_EQ(to_well_formed("\xF0\x9F\x98"), times(1));
  EXPECT_EQ(to_well_formed("\xF0\x9F\x98x"), times(1) + "x");
  EXPECT_EQ(to_well_formed("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), times(4) + "A");
  EXPECT_EQ(to_well_formed("a\xFF"
                           "b\x80"),
            "a" + times(1) + "b" + times(1));
  EXPECT_EQ(to_well_formed(""), "");
}

TEST(Unicode, RoundTripsEveryCharacter) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(code, text);
    const Utf8Char c = decode_utf8(text.data(), text.data() + text.size());
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
    ASSERT_EQ(c.state, Utf8State::complete);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Char part = decode_utf8(text.data(), text.data() + cut);
      ASSERT_EQ(part.state, Utf8State::truncated);
      ASSERT_EQ(part.length, cut);
    }
  }
}

TEST(Unicode, KnowsTheClassesOfCharacters) {
  EXPECT_EQ(char_flags('A'), kUpperLetter);
  EXPECT_EQ(char_flags(0x01C5), kUpperLetter);  // title case
  EXPECT_EQ(char_flags(0x00DF), kLowerLetter);
  EXPECT_EQ(char_flags(0x4E00), kOtherLetter);
  EXPECT_EQ(char_flags(0x0301), kMark);
  EXPECT_EQ(char_flags(0x00BD), kNumber);
  EXPECT_EQ(char_flags(0x2014), kPunctuation);
  EXPECT_EQ(char_flags(0x20AC), kSymbol);
  EXPECT_EQ(char_flags(0x3000), kWhiteSpace);
  EXPECT_EQ(char_flags(0x0085), kWhiteSpace);
  EXPECT_EQ(char_flags(0x200B), 0);
  EXPECT_EQ(char_flags(0xE0100), kMark);  // plane 14
  EXPECT_EQ(char_flags(0x110000), 0);
  for (char32_t c = 0; c < 128; ++c)
    EXPECT_EQ(kAsciiFlags[c], char_flags(c)) << static_cast<uint32_t>(c);
}

}  // namespace
}  // namespace millrace
