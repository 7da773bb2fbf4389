#include "absl/strings/str_format.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/unicode.h"

namespace millrace {
namespace {

// Character classes that published tokenizers spell out as ranges.
constexpr CodeRange kDeepseekLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943}};
constexpr CodeRange kDeepseekPunctuation[] = {{0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
                                              {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
constexpr CodeRange kDeepseekCjk[] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};
constexpr CodeRange kCjkAndKana[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};
constexpr CodeRange kNewlines[] = {{0x0A, 0x0A}, {0x0D, 0x0D}};
constexpr CodeRange kAsciiDigits[] = {{'0', '9'}};
// Together with \p{P}: all of ASCII's punctuation.
constexpr CodeRange kAsciiSymbols[] = {{'$', '$'}, {'+', '+'}, {'<', '>'}, {'^', '^'},
                                       {'`', '`'}, {'|', '|'}, {'~', '~'}};

constexpr SplitRule kGpt2 = {.kind = SplitRule::Kind::gpt2};
constexpr SplitRule kLlama3 = {.kind = SplitRule::Kind::word, .max_digits = 3};
constexpr SplitRule kQwen2 = {.kind = SplitRule::Kind::word, .max_digits = 1};
constexpr SplitRule kQwen35 = {
    .kind = SplitRule::Kind::word, .max_digits = 1, .marks_in_words = true};
constexpr SplitRule kCl100k = {.kind = SplitRule::Kind::word, .max_digits = 3, .whole_tail = true};
constexpr SplitRule kLongDigits = {.kind = SplitRule::Kind::word, .max_digits = 0};
constexpr SplitRule kNoContractions = {
    .kind = SplitRule::Kind::word, .max_digits = 1, .contractions = false};
constexpr SplitRule kSeedCoder = {
    .kind = SplitRule::Kind::word, .max_digits = 1, .punctuation_takes_newlines = false};
constexpr SplitRule kO200k = {.kind = SplitRule::Kind::cased_word, .max_digits = 3};
constexpr SplitRule kTekken = {
    .kind = SplitRule::Kind::cased_word, .max_digits = 1, .contractions = false};
constexpr SplitRule kDeepseek3 = {.kind = SplitRule::Kind::deepseek3};

SplitRule run_of(CharSet set, uint8_t prefix_flags = 0, int min = 1, int max = 0) {
  return {.kind = SplitRule::Kind::run,
          .prefix_flags = prefix_flags,
          .set = set,
          .min = min,
          .max = max};
}
SplitRule digits_up_to(int max) { return run_of({kNumber}, 0, 1, max); }
SplitRule white_space_tail() {
  return {.kind = SplitRule::Kind::run, .set = {kWhiteSpace}, .at_end = true};
}

// What one family of vocabularies does before merging, and its names in tokenizer.ggml.pre.
struct Family {
  std::vector<std::string_view> names;
  std::vector<SplitRule> rules;
  bool ignore_merges = false;
  bool add_bos = false;
};

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {{"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
        "gigachat", "a.x-4.0", "mellum", "modern-bert", "roberta-bpe", "jina-v2-code"},
       {kGpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       {digits_up_to(1), kGpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kLlama3},
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {kLlama3}},
      {{"glm4", "glm5"}, {kLlama3}, true},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "solar-open", "grok-2",
        "kormo", "bailingmoe", "bailingmoe2", "llada-moe"},
       {kQwen2}},
      {{"qwen35"}, {kQwen35}},
      {{"minicpm5"}, {digits_up_to(3), kLongDigits}, true},
      {{"ufakzeka"}, {kNoContractions}},
      {{"seed-coder"}, {kSeedCoder}},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kO200k}},
      {{"tekken"}, {kTekken}, true, true},
      {{"deepseek-llm"},
       {run_of({0, kNewlines}, 0, 1, 1), run_of({0, kDeepseekLetters}, kWhiteSpace),
        run_of({0, kDeepseekPunctuation}, kWhiteSpace), white_space_tail(),
        run_of({0, kDeepseekCjk}), digits_up_to(0)}},
      {{"deepseek-coder"},
       {run_of({0, kNewlines}, 0, 1, 1), run_of({kLetter}, kWhiteSpace),
        run_of({kPunctuation}, kWhiteSpace), run_of({0, kDeepseekCjk}), digits_up_to(1)}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {digits_up_to(3), run_of({0, kCjkAndKana}), kDeepseek3}},
      {{"falcon"},
       {run_of({kPunctuation, kAsciiSymbols}), kGpt2, run_of({0, kAsciiDigits}, 0, 3, 3)}},
  };
  return table;
}

struct KnownPattern {
  std::string_view pattern;
  SplitRule rule;
};

// clang-format off
const std::vector<KnownPattern>& known_patterns() {
  static const std::vector<KnownPattern> table = {
      {R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
       kGpt2},
      {R"re('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
       kGpt2},
      {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p)re"
       R"re({N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kLlama3},
      {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)re"
       R"re([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kQwen2},
      {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}])re"
       R"re(+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kLongDigits},
      {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L})re"
       R"re(\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kQwen35},
      {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N)re"
       R"re(}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kSeedCoder},
      {R"re([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|)re"
       R"re(\s+)re",
       kNoContractions},
      {R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?)re"
       R"re(i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)re"
       R"re([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L})re"
       R"re(\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kO200k},
      {R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[)re"
       R"re(^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p)re"
       R"re({N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kTekken},
      {R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\)re"
       R"re(p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
       kDeepseek3},
      {R"re(\p{N}{1,3})re", digits_up_to(3)},
      {R"re(\p{N})re", digits_up_to(1)},
      {R"re(\p{N}+)re", digits_up_to(0)},
      {R"re([\r\n])re", run_of({0, kNewlines}, 0, 1, 1)},
      {R"re(\s?\p{L}+)re", run_of({kLetter}, kWhiteSpace)},
      {R"re(\s?\p{P}+)re", run_of({kPunctuation}, kWhiteSpace)},
      {"[一-龥぀-ゟ゠-ヿ]+", run_of({0, kCjkAndKana})},
      {"[一-龥ࠀ-一가-퟿]+", run_of({0, kDeepseekCjk})},
  };
  return table;
}
// clang-format on

// tokenizer.json files write line ends in a pattern either escaped or as the characters.
std::string with_escaped_newlines(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == '\r') {
      out += "\\r";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

StatusOr<NamedSplit> split_for_gguf(std::string_view pre) {
  std::string supported;
  for (const Family& family : families()) {
    for (const std::string_view name : family.names) {
      if (name == pre) {
        NamedSplit split;
        for (const SplitRule& rule : family.rules) split.stages.push_back({rule});
        split.ignore_merges = family.ignore_merges;
        split.add_bos = family.add_bos;
        return split;
      }
      if (!supported.empty()) supported += ", ";
      supported += name;
    }
  }
  if (pre.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tokenizer.ggml.pre is missing, so the rule that splits text before merging is unknown; "
        "supported names are: %s",
        supported));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("tokenizer.ggml.pre \"%s\" is not supported; supported names are: %s",
                      std::string(pre), supported));
}

StatusOr<SplitStage> split_for_pattern(std::string_view pattern) {
  const std::string escaped = with_escaped_newlines(pattern);
  for (const KnownPattern& known : known_patterns()) {
    if (known.pattern == escaped) return SplitStage{known.rule};
  }
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const SplitRegex> regex, SplitRegex::compile(pattern));
  return SplitStage{std::move(regex)};
}

StatusOr<SplitStage> split_for_tiktoken(std::string_view name) {
  struct Named {
    std::string_view name;
    SplitRule rule;
  };
  static const std::vector<Named> table = {
      {"cl100k_base", kCl100k}, {"o200k_base", kO200k}, {"gpt2", kGpt2},     {"r50k_base", kGpt2},
      {"p50k_base", kGpt2},     {"qwen2", kQwen2},      {"qwen35", kQwen35}, {"llama3", kLlama3}};
  std::string supported;
  for (const Named& entry : table) {
    if (entry.name == name) return SplitStage{entry.rule};
    supported += supported.empty() ? "" : ", ";
    supported += entry.name;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("the split pattern name \"%s\" is not supported; supported names are: %s",
                      std::string(name), supported));
}

SplitRule digits_rule(bool individual) { return digits_up_to(individual ? 1 : 0); }

SplitRule punctuation_rule() { return run_of({kPunctuation, kAsciiSymbols}, 0, 1, 1); }

}  // namespace millrace
