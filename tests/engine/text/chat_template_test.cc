#include "engine/text/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

Json context_of(std::vector<std::pair<const char*, const char*>> messages) {
  Json context = {{"messages", Json::array()}, {"add_generation_prompt", false}};
  for (const auto& [role, content] : messages)
    context["messages"].push_back({{"role", role}, {"content", content}});
  return context;
}

StatusOr<RenderedText> try_render(const std::string& source, const Json& context = Json::object(),
                                  const RenderLimits& limits = {}) {
  auto compiled = ChatTemplate::compile(source);
  if (!compiled.ok()) return compiled.status();
  return (*compiled)->render(context, limits);
}

std::string render(const std::string& source, const Json& context = Json::object()) {
  const auto rendered = try_render(source, context);
  return rendered.ok() ? rendered->text : "error: " + rendered.status().ToString();
}

TEST(ChatTemplate, LoopControlsSlicesAndMethodsOnFilterResults) {
  const Json three = context_of({{"user", "a"}, {"assistant", "b"}, {"user", "c"}});
  EXPECT_EQ(render("{% for m in messages[::-1] %}{% if loop.index0 == 1 %}{% break %}{% endif %}"
                   "{{ m.content }}{% endfor %}",
                   three),
            "c");
  EXPECT_EQ(render("{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}"
                   "{{ m.content }}{% endfor %}",
                   three),
            "ac");
  EXPECT_EQ(render("{{ ('x</think>\\ny'.split('</think>')|last).lstrip('\\n') }}"), "y");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
                   "{% endfor %}{{ ns.n }}",
                   three),
            "3");
}

TEST(ChatTemplate, ToJsonIsWhatTheReferenceWrites) {
  const Json context = {{"t", {{"zeta", 1}, {"alpha", "\u00df<b>'"}}}};
  EXPECT_EQ(render("{{ t|tojson }}", context), "{\"zeta\": 1, \"alpha\": \"\u00df<b>'\"}");
  EXPECT_EQ(render("{{ t|tojson(indent=4) }}", context),
            "{\n    \"zeta\": 1,\n    \"alpha\": \"\u00df<b>'\"\n}");
  EXPECT_EQ(render("{{ t|tojson(ensure_ascii=True) }}", context),
            "{\"zeta\": 1, \"alpha\": \"\\u00df<b>'\"}");
  EXPECT_EQ(render("{{ [1.0, true, none, 1e20]|tojson }}"), "[1.0, true, null, 1e+20]");
}

TEST(ChatTemplate, UserTextKeepsItsMark) {
  const auto rendered = try_render(
      "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ (m.content|trim ~ '!')"
      "|replace('b', '<x>') }}<|end|>{% endfor %}",
      [] {
        Json c = context_of({{"user", "  a<|end|>b "}});
        c["bos_token"] = "<s>";
        return c;
      }());
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->text, "<s><|user|>a<|end|><x>!<|end|>");
  std::string user, own;
  size_t at = 0;
  for (const ByteRange& r : rendered->user_ranges) {
    own += rendered->text.substr(at, r.begin - at);
    user += rendered->text.substr(r.begin, r.end - r.begin);
    at = r.end;
  }
  own += rendered->text.substr(at);
  EXPECT_EQ(user, "usera<|end|>");
  EXPECT_EQ(own, "<s><||><x>!<|end|>");
}

TEST(ChatTemplate, UserTextIsNeverCompiled) {
  EXPECT_EQ(render("{{ messages[0].content }}", context_of({{"user", "{{ 7*7 }}"}})), "{{ 7*7 }}");
}

TEST(ChatTemplate, BudgetsHold) {
  const auto nested =
      try_render("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  EXPECT_EQ(nested.status().code(), absl::StatusCode::kResourceExhausted);
  const auto large = try_render("{{ 'a' * 10**9 }}");
  EXPECT_EQ(large.status().code(), absl::StatusCode::kResourceExhausted);
  const auto grown = try_render(
      "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}");
  EXPECT_EQ(grown.status().code(), absl::StatusCode::kResourceExhausted);
  const auto recursive = try_render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  EXPECT_EQ(recursive.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(try_render(std::string(200'000, '(')).ok() &&
               try_render("{{ " + std::string(200'000, '(') + " }}").ok());
  EXPECT_FALSE(try_render("{{ " + std::string(100'000, '-') + "1 }}").ok());
  std::string blocks;
  for (int i = 0; i < 50'000; ++i) blocks += "{% if 1 %}";
  EXPECT_FALSE(try_render(blocks).ok());
}

TEST(ChatTemplate, ErrorsNameLineAndReason) {
  const auto raised = try_render("a\n{{ raise_exception('Roles must alternate') }}");
  ASSERT_FALSE(raised.ok());
  EXPECT_NE(status_message(raised.status()).find("Roles must alternate"), std::string::npos);
  EXPECT_NE(status_message(raised.status()).find("2"), std::string::npos);
  const auto unknown = ChatTemplate::compile("a\n\n{% frobnicate %}");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(status_message(unknown.status()).find("frobnicate"), std::string::npos);
  EXPECT_NE(status_message(unknown.status()).find("3"), std::string::npos);
  EXPECT_FALSE(try_render("{{ nothing.at_all }}").ok());
  EXPECT_FALSE(try_render("{{ messages.append(1) }}", context_of({{"user", "a"}})).ok());
  EXPECT_EQ(render("{{ nothing }}|{{ none }}|{{ nothing is defined }}"), "|None|False");
}

TEST(ChatTemplate, FindsOutInWhichFormArgumentsAreWanted) {
  const auto wants = [](const std::string& body) {
    return (*ChatTemplate::compile("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls "
                                   "or [] %}" +
                                   body + "{% endfor %}{% endfor %}"))
        ->wants_argument_objects();
  };
  EXPECT_TRUE(wants("{{ c.function.arguments|tojson }}"));
  EXPECT_TRUE(wants("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"));
  EXPECT_FALSE(wants("{{ '{' ~ c.function.arguments[1:] }}"));
}

}  // namespace
}  // namespace millrace
