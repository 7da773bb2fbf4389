#include "engine/text/jinja_render.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& context = Json::object()) {
  const auto tree = compile_template(source);
  if (!tree.ok()) return "error: " + status_message(tree.status());
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 2;
  now.tm_hour = 3;
  const auto rendered = render_template(**tree, context, {}, &now);
  return rendered.ok() ? rendered->text : "error: " + status_message(rendered.status());
}

bool fails(const std::string& source) { return render(source).starts_with("error: "); }

TEST(JinjaLexer, TrimAndLstripBlocks) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a  {%- if true -%}  b  {%- endif %} c"), "ab c");
  EXPECT_EQ(render("a\n  {%+ if true %}b{% endif +%}\nc"), "a\n  b\nc");
  EXPECT_EQ(render("a\n  {# c #}\nb"), "a\nb");
  EXPECT_EQ(render("  {{ 1 }}\n {{- 2 }}"), "  12");
  EXPECT_EQ(render("x {% if true %}y{% endif %}"), "x y");
}

TEST(JinjaLexer, NewlinesAreNormalizedAndOneAtTheEndGoes) {
  EXPECT_EQ(render("a\r\nb\rc\n\n"), "a\nb\nc\n");
  EXPECT_EQ(render(""), "");
  EXPECT_EQ(render("{"), "{");
  EXPECT_EQ(render("{ {"), "{ {");
}

TEST(JinjaLexer, BracesInsideExpressions) {
  EXPECT_EQ(render("{{ {'a': {'b': 1}}}}"), "{'a': {'b': 1}}");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_TRUE(fails("{{ ) }}"));
  EXPECT_TRUE(fails("{{ '\\ud800' }}"));
  EXPECT_TRUE(fails("{{ '\\x4' }}"));
}

TEST(JinjaNumbers, IntegersHave64BitsAndOverflowIsAnError) {
  EXPECT_EQ(render("{{ 9223372036854775807 }}"), "9223372036854775807");
  EXPECT_TRUE(fails("{{ 9223372036854775807 + 1 }}"));
  EXPECT_TRUE(fails("{{ -9223372036854775807 - 2 }}"));
  EXPECT_TRUE(fails("{{ 9223372036854775807 * 2 }}"));
  EXPECT_TRUE(fails("{{ 10 ** 19 }}"));
  EXPECT_TRUE(fails("{{ (-9223372036854775807 - 1) // -1 }}"));
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_TRUE(fails("{{ -(-9223372036854775807 - 1) }}"));
}

TEST(JinjaNumbers, SlicesAtTheEdgeOfIntegers) {
  EXPECT_EQ(render("{{ [1,2,3][::9223372036854775807] }}"), "[1]");
  EXPECT_EQ(render("{{ [1,2,3][::-9223372036854775807] }}"), "[3]");
  EXPECT_EQ(render("{{ 'abc'[-9223372036854775807:9223372036854775807] }}"), "abc");
  EXPECT_EQ(render("{{ range(9223372036854775806, 9223372036854775807)|list }}"),
            "[9223372036854775806]");
  EXPECT_TRUE(fails("{{ range(9223372036854775807)|list }}"));
  EXPECT_TRUE(fails("{{ [1][::0] }}"));
}

TEST(JinjaStrings, PositionsAreCodePoints) {
  const Json context = {{"u", "aß京😀b"}};
  EXPECT_EQ(render("{{ u|length }}{{ u[2] }}{{ u[3:] }}{{ u[::-1] }}{{ u.find('b') }}", context),
            "5京😀bb😀京ßa4");
}

TEST(JinjaStrings, IllFormedBytesAreKept) {
  EXPECT_EQ(render("{{ '\xFF\xC0' }}"), "\xFF\xC0");
  EXPECT_EQ(render("{{ '\xFF\xC0z'|length }}{{ '\xC0z'|upper }}"), "3\xC0Z");
  EXPECT_EQ(render("{{ ' \x80 '|trim }}"), "\x80");
}

TEST(JinjaDicts, ManyKeysAreFoundAndReplaced) {
  Json wide = Json::object();
  for (int i = 0; i < 100; ++i) wide["k" + std::to_string(i)] = i;
  const Json context = {{"d", wide}};
  EXPECT_EQ(render("{{ d.k0 }} {{ d['k99'] }} {{ d.k100 is defined }} {{ 'k50' in d }}", context),
            "0 99 False True");
  EXPECT_EQ(render("{{ dict(d, k7='x').k7 }} {{ dict(d, new=1)|length }}", context), "x 101");
  EXPECT_EQ(render("{{ {1: 'a', true: 'b', 1.0: 'c'} }}"), "{1: 'c'}");
}

TEST(JinjaUndefined, PrintsEmptyButMayNotBeUsed) {
  EXPECT_EQ(render("[{{ x }}][{{ (x.y is defined) if x }}]"), "[][]");
  EXPECT_EQ(render("{{ x.y }}"), "error: chat template, line 1: 'x' is undefined");
  EXPECT_EQ(render("{% for m in x %}{% endfor %}{{ x|length }}"), "0");
  EXPECT_EQ(render("{{ none is undefined }}{{ none.x is undefined }}"), "FalseTrue");
}

TEST(JinjaSandbox, MethodsThatChangeTheirObjectAreUndefined) {
  EXPECT_TRUE(fails("{{ [1].append(2) }}"));
  EXPECT_TRUE(fails("{{ {'a': 1}.pop('a') }}"));
  EXPECT_TRUE(fails("{{ {}.update({}) }}"));
  EXPECT_TRUE(fails("{{ ''.__class__.__mro__ }}"));
}

TEST(JinjaScopes, MacrosSeeWhereTheyAreDefinedNotWhereTheyAreCalled) {
  EXPECT_EQ(render("{% macro m() %}{{ x }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}"),
            "");
  EXPECT_EQ(render("{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}"), "2");
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% for x in [1, 2] %}{% macro m() %}{{ x }}{% endmacro %}"
             "{% if x == 1 %}{% set ns.m = m %}{% endif %}{% endfor %}{{ ns.m() }}"),
      "1");
}

TEST(JinjaGlobals, TimeIsTheOneGiven) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %H:%M') }}"), "02 Jan 2026 03:00");
  EXPECT_TRUE(fails("{{ strftime_now('%A' * 500) }}"));
}

TEST(JinjaGlobals, AnObjectWithStateIsNotAFunction) {
  EXPECT_EQ(render("{{ cycler(1)() }}"),
            "error: chat template, line 1: 'cycler' object is not callable");
}

TEST(JinjaContext, DataDeeperThanTheLimitIsRefused) {
  Json deep = Json::array();
  for (int i = 0; i < 600; ++i) deep = Json::array({std::move(deep)});
  EXPECT_TRUE(render("{{ x }}", {{"x", deep}}).starts_with("error: "));
}

TEST(JinjaContext, NumbersBeyond64BitsBecomeFloats) {
  EXPECT_EQ(render("{{ x }}", {{"x", 18446744073709551615u}}), "1.8446744073709552e+19");
}

}  // namespace
}  // namespace millrace::jinja
