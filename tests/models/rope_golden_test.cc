// Rotary tables of real settings against the Hugging Face reference, from config.json to cosines.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/load/hf_config.h"
#include "models/rope.h"

namespace millrace {
namespace {

std::vector<nlohmann::json> rope_cases() {
  std::ifstream file(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/rope.json");
  return nlohmann::json::parse(file);
}

TEST(RopeGolden, TablesEqualTheReferenceAtFarPositions) {
  const nlohmann::json empty = nlohmann::json::object();
  for (const nlohmann::json& c : rope_cases()) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const auto config = hf_model_config({c.at("config"), "config.json", empty, "", 100});
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->max_positions, c.at("max_positions").get<int64_t>());
    const auto positions = c.at("positions").get<std::vector<int64_t>>();
    const RopeValues values =
        make_rope_values(config->rope, config->max_positions, positions.back() + 1);
    const auto half = static_cast<size_t>(config->rope.rotary_dim / 2);
    for (size_t p = 0; p < positions.size(); ++p) {
      for (size_t i = 0; i < half; ++i) {
        const size_t at = static_cast<size_t>(positions[p]) * half + i;
        EXPECT_NEAR(values.cos[at], c.at("cos")[p][i].get<float>(), 1e-6)
            << "position " << positions[p] << ", pair " << i;
        EXPECT_NEAR(values.sin[at], c.at("sin")[p][i].get<float>(), 1e-6)
            << "position " << positions[p] << ", pair " << i;
      }
    }
  }
}

TEST(RopeGolden, UnknownScalingIsRefused) {
  nlohmann::json config = rope_cases().front().at("config");
  config["rope_parameters"] = {{"rope_type", "spiral"}, {"factor", 2.0}};
  const nlohmann::json empty = nlohmann::json::object();
  const auto result = hf_model_config({config, "config.json", empty, "", 100});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(status_message(result.status()).find("\"spiral\""), std::string::npos);
}

}  // namespace
}  // namespace millrace
