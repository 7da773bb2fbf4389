// The text side of a Hugging Face folder: chat template and special token texts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace millrace {

// `tokenizer_config` is the text of tokenizer_config.json or empty. The file chat_template.jinja
// wins over the chat_template field, which is a string or a list of named templates, of which
// "default" is taken. Empty if there is none.
StatusOr<std::string> hf_chat_template(const std::string& folder,
                                       const std::string& tokenizer_config);

// bos_token, eos_token, ... as texts.
StatusOr<std::vector<std::pair<std::string, std::string>>> hf_special_token_texts(
    const std::string& folder, const std::string& tokenizer_config);

}  // namespace millrace
