#include "engine/text/jinja_render.h"

#include <nlohmann/json.hpp>

#include "engine/text/jinja_interpreter.h"
#include "engine/text/jinja_parser.h"

namespace millrace::jinja {
namespace {

Status to_status(const Failure& failure) {
  std::string message =
      "chat template, line " + std::to_string(failure.line) + ": " + failure.message;
  return failure.kind == Failure::Kind::kLimit ? absl::ResourceExhaustedError(message)
                                               : absl::InvalidArgumentError(message);
}

}  // namespace

StatusOr<std::unique_ptr<Template>> compile_template(std::string_view source) {
  try {
    return parse_template(source);
  } catch (const Failure& failure) {
    return to_status(failure);
  }
}

StatusOr<RenderedText> render_template(const Template& tree, const nlohmann::ordered_json& context,
                                       const RenderLimits& limits, const std::tm* now) {
  if (!context.is_object())
    return absl::InvalidArgumentError("the context of a chat template is a JSON object");
  try {
    Heap heap(limits);
    return Interpreter(tree, heap, now).render(context);
  } catch (const Failure& failure) {
    return to_status(failure);
  }
}

}  // namespace millrace::jinja
