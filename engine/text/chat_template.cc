#include "engine/text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/text/jinja_render.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// Words that no template contains, so that finding them in a rendered text proves where they came
// from.
constexpr char kProbeName[] = "mr_probe_function";
constexpr char kProbeKey[] = "mr_probe_key";
constexpr char kProbeParameter[] = "mr_probe_parameter";  // of the tool, never in a call
constexpr char kProbeValue[] = "mr_probe_value";
constexpr char kProbeSystem[] = "mr_probe_system";

Json probe_context(Json messages) {
  Json context = Json::object();
  context["messages"] = std::move(messages);
  context["add_generation_prompt"] = false;
  context["bos_token"] = "<s>";
  context["eos_token"] = "</s>";
  return context;
}

Json probe_tools() {
  const Json parameters = {
      {"type", "object"},
      {"properties", {{kProbeParameter, {{"type", "string"}, {"description", "a key"}}}}},
      {"required", Json::array({kProbeParameter})}};
  const Json function = {
      {"name", kProbeName}, {"description", "a function"}, {"parameters", parameters}};
  return Json::array({Json{{"type", "function"}, {"function", function}}});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The text of a replayed tool call, empty when the template refuses it.
std::string render_call(const jinja::Template& tree, const Json& arguments, const Json& content,
                        const RenderLimits& limits) {
  const Json call = {{"id", "abcdefghi"},
                     {"type", "function"},
                     {"function", {{"name", kProbeName}, {"arguments", arguments}}}};
  Json context = probe_context(Json::array(
      {Json{{"role", "user"}, {"content", "a question"}},
       Json{{"role", "assistant"}, {"content", content}, {"tool_calls", Json::array({call})}},
       Json{{"role", "tool"},
            {"name", kProbeName},
            {"tool_call_id", "abcdefghi"},
            {"content", "a result"}},
       Json{{"role", "assistant"}, {"content", "an answer"}},
       Json{{"role", "user"}, {"content", "a question"}}}));
  context["tools"] = probe_tools();
  const auto rendered = jinja::render_template(tree, context, limits);
  if (!rendered.ok()) return "";
  return contains(rendered->text, kProbeValue) ? rendered->text : "";
}

// Whether the arguments of a replayed call came out as JSON or in a layout of the template's own:
// a mapping printed as Python shows it, or a text that was quoted once more, did not.
bool is_clean(const std::string& text) {
  const std::string key = kProbeKey;
  return !text.empty() && !contains(text, "{'" + key + "'") &&
         !contains(text, "\\\"" + key + "\\\"");
}

bool probe_argument_objects(const jinja::Template& tree, const RenderLimits& limits) {
  const Json object = {{kProbeKey, kProbeValue}};
  for (const Json& content : {Json(""), Json(nullptr), Json("a remark")}) {
    if (is_clean(render_call(tree, object, content, limits))) return true;
    if (is_clean(render_call(tree, Json(object.dump()), content, limits))) return false;
  }
  return false;
}

bool probe_tool_list(const jinja::Template& tree, const RenderLimits& limits) {
  Json context = probe_context(Json::array({Json{{"role", "user"}, {"content", "a question"}}}));
  context["tools"] = probe_tools();
  const auto rendered = jinja::render_template(tree, context, limits);
  return rendered.ok() && contains(rendered->text, kProbeName);
}

bool probe_system_role(const jinja::Template& tree, const RenderLimits& limits) {
  const Json context =
      probe_context(Json::array({Json{{"role", "system"}, {"content", kProbeSystem}},
                                 Json{{"role", "user"}, {"content", "a question"}}}));
  const auto rendered = jinja::render_template(tree, context, limits);
  return rendered.ok() && contains(rendered->text, kProbeSystem);
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  std::unique_ptr<jinja::Template> tree;
  bool wants_argument_objects = false;
  bool supports_tools = false;
  bool supports_system_role = false;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(std::string source) {
  auto impl = std::make_unique<Impl>();
  MR_ASSIGN_OR_RETURN(impl->tree, jinja::compile_template(source));
  impl->source = std::move(source);
  RenderLimits limits;
  limits.max_steps = 200'000;  // a probe is a short chat
  limits.max_output_bytes = 1 << 20;
  impl->wants_argument_objects = probe_argument_objects(*impl->tree, limits);
  impl->supports_tools = probe_tool_list(*impl->tree, limits);
  impl->supports_system_role = probe_system_role(*impl->tree, limits);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

StatusOr<RenderedText> ChatTemplate::render(const Json& context, const RenderLimits& limits) const {
  return jinja::render_template(*impl_->tree, context, limits);
}

const std::string& ChatTemplate::source() const { return impl_->source; }
bool ChatTemplate::wants_argument_objects() const { return impl_->wants_argument_objects; }
bool ChatTemplate::supports_tools() const { return impl_->supports_tools; }
bool ChatTemplate::supports_system_role() const { return impl_->supports_system_role; }

}  // namespace millrace
