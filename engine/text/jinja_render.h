// The two entries of the Jinja implementation, without exceptions. Pure functions.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "engine/base/status.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja_ast.h"

namespace millrace::jinja {

StatusOr<std::unique_ptr<Template>> compile_template(std::string_view source);

// `now` is what strftime_now formats; null is the local time.
StatusOr<RenderedText> render_template(const Template& tree, const nlohmann::ordered_json& context,
                                       const RenderLimits& limits, const std::tm* now = nullptr);

}  // namespace millrace::jinja
