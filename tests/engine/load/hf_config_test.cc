#include "engine/load/hf_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/load/hf_text.h"
#include "tests/engine/load/gguf_builder_fixture.h"

namespace millrace {
namespace {

using nlohmann::json;

json base(const char* architecture) {
  return {{"architectures", {architecture}},
          {"vocab_size", 100},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 128},
          {"eos_token_id", 7}};
}

StatusOr<ModelConfig> read(const json& config, const json& generation = json::object()) {
  return hf_model_config({config, "config.json", generation, "generation_config.json", 1000});
}

std::string error_of(const json& config) {
  const auto result = read(config);
  EXPECT_FALSE(result.ok());
  return status_message(result.status());
}

TEST(HfConfig, FamiliesDifferInBiasesAndNorms) {
  json llama = base("LlamaForCausalLM");
  EXPECT_FALSE(read(llama)->qkv_bias);
  llama["attention_bias"] = true;
  EXPECT_TRUE(read(llama)->qkv_bias && read(llama)->o_bias);
  json qwen2 = base("Qwen2ForCausalLM");
  EXPECT_TRUE(read(qwen2)->qkv_bias);
  EXPECT_FALSE(read(qwen2)->o_bias);
  EXPECT_FALSE(read(qwen2)->qk_norm);
  EXPECT_TRUE(read(base("Qwen3ForCausalLM"))->qk_norm);
  EXPECT_EQ(read(llama)->head_dim, 16);
  llama["head_dim"] = 24;
  EXPECT_EQ(read(llama)->head_dim, 24);
  EXPECT_EQ(read(llama)->rope.rotary_dim, 24);
  json by_type = base("x");
  by_type.erase("architectures");
  by_type["model_type"] = "mistral";
  EXPECT_EQ(read(by_type)->architecture, "MistralForCausalLM");
}

TEST(HfConfig, UnsupportedThingsAreNamed) {
  EXPECT_NE(error_of(base("GPT2LMHeadModel")).find("\"GPT2LMHeadModel\" is not supported; Llama"),
            std::string::npos);
  json config = base("LlamaForCausalLM");
  config["hidden_act"] = "gelu";
  EXPECT_NE(error_of(config).find("\"hidden_act\" is \"gelu\"; silu"), std::string::npos);
  config = base("LlamaForCausalLM");
  config["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_NE(error_of(config).find("quantization_config"), std::string::npos);
  config = base("LlamaForCausalLM");
  config["num_hidden_layers"] = 1001;
  EXPECT_NE(error_of(config).find("the number of layers is 1001"), std::string::npos);
  config = base("LlamaForCausalLM");
  config["num_key_value_heads"] = 3;
  EXPECT_NE(error_of(config).find("4 attention heads"), std::string::npos);
  config = base("LlamaForCausalLM");
  config["hidden_size"] = "wide";
  EXPECT_EQ(error_of(config), "config.json: field \"hidden_size\" must be an integer.");
  config.erase("hidden_size");
  EXPECT_EQ(error_of(config), "config.json: field \"hidden_size\" is missing.");
}

TEST(HfConfig, EveryNumberMayLie) {
  const json lies[] = {
      0,     -1,   1,   2147483648u, 4294967295u,   9223372036854775807, 18446744073709551615u,
      1e300, -0.5, "x", nullptr,     json::array(), json::object()};
  const json good = base("Qwen2ForCausalLM");
  for (const auto& [field, value] : good.items()) {
    for (const json& lie : lies) {
      json config = good;
      config[field] = lie;
      const auto result = read(config);  // must return, whatever it says
      if (result.ok()) {
        EXPECT_LE(result->window.size(), 1000u);
      }
    }
  }
}

TEST(HfConfig, SlidingWindows) {
  json mistral = base("MistralForCausalLM");
  EXPECT_EQ(read(mistral)->window, (std::vector<int>(4, 4096)));
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(read(mistral)->window, (std::vector<int>(4, 0)));
  mistral["sliding_window"] = 20;
  EXPECT_EQ(read(mistral)->window, (std::vector<int>(4, 20)));
  json qwen = base("Qwen2ForCausalLM");
  qwen["sliding_window"] = 20;
  qwen["max_window_layers"] = 2;
  EXPECT_EQ(read(qwen)->window, (std::vector<int>{0, 0, 0, 0}));
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(read(qwen)->window, (std::vector<int>{0, 0, 20, 20}));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                         "sliding_attention"};
  EXPECT_EQ(read(qwen)->window, (std::vector<int>{20, 0, 0, 20}));
  qwen["layer_types"] = {"linear_attention", "full_attention", "full_attention", "full_attention"};
  EXPECT_NE(error_of(qwen).find("linear_attention"), std::string::npos);
}

TEST(HfConfig, EndTokensComeFromTheGenerationConfigFirst) {
  const json config = base("LlamaForCausalLM");
  EXPECT_EQ(read(config)->eos_tokens, (std::vector<int32_t>{7}));
  EXPECT_EQ(read(config, {{"eos_token_id", {3, 4}}})->eos_tokens, (std::vector<int32_t>{3, 4}));
  EXPECT_FALSE(read(config, {{"eos_token_id", "x"}}).ok());
}

TEST(HfConfig, RopeParametersNestedByLayerTypeMustAgree) {
  json config = base("Qwen3ForCausalLM");
  const json yarn = {{"rope_type", "yarn"}, {"rope_theta", 1e6}, {"factor", 4.0}};
  config["rope_parameters"] = {{"full_attention", yarn}, {"sliding_attention", yarn}};
  EXPECT_EQ(read(config)->rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(read(config)->rope.theta, 1e6);
  EXPECT_EQ(read(config)->max_positions, 512);
  config["rope_parameters"]["sliding_attention"]["factor"] = 2.0;
  EXPECT_NE(error_of(config).find("differs between layer types"), std::string::npos);
}

TEST(HfText, TemplatesAndSpecialTokens) {
  const std::string folder =
      std::filesystem::path(write_test_file("mark", std::string())).parent_path().string();
  std::filesystem::remove(folder + "/chat_template.jinja");
  EXPECT_EQ(*hf_chat_template(folder, ""), "");
  EXPECT_EQ(*hf_chat_template(folder, R"({"chat_template":"T"})"), "T");
  EXPECT_EQ(*hf_chat_template(folder, R"({"chat_template":[{"name":"tool_use","template":"U"},
                                          {"name":"default","template":"D"}]})"),
            "D");
  EXPECT_FALSE(hf_chat_template(folder, R"({"chat_template":7})").ok());
  EXPECT_FALSE(hf_chat_template(folder, "{").ok());
  write_test_file("chat_template.jinja", std::string("J"));
  EXPECT_EQ(*hf_chat_template(folder, R"({"chat_template":"T"})"), "J");
  const auto texts =
      hf_special_token_texts(folder, R"({"bos_token":"<s>","eos_token":{"content":"</s>"},
                                        "pad_token":null})");
  ASSERT_TRUE(texts.ok());
  EXPECT_EQ(*texts, (std::vector<std::pair<std::string, std::string>>{{"bos_token", "<s>"},
                                                                      {"eos_token", "</s>"}}));
}

}  // namespace
}  // namespace millrace
