#include "server/app/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace millrace::app {
namespace {

// One subcommand with an option of each kind.
struct Settings {
  ConfigFlags config;
  int port = 8000;
  bool prefix_caching = true;
  std::vector<std::string> names;
  std::vector<std::string> keys;
  std::string model;
  std::string text;
};

class ConfigTest : public testing::Test {
 protected:
  ~ConfigTest() override {
    for (const std::string& name : environment_) ::unsetenv(name.c_str());
  }

  void set_environment(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    environment_.push_back(name);
  }
  std::string write_file(const std::string& text) {
    const std::string path = testing::TempDir() + "millrace_config_" + std::to_string(::getpid());
    FILE* file = std::fopen(path.c_str(), "w");
    std::fputs(text.c_str(), file);
    std::fclose(file);
    return path;
  }
  Settings parse(std::vector<std::string> arguments) {
    Settings settings;
    CLI::App app;
    CLI::App* serve = app.add_subcommand("serve", "");
    add_config_flags(*serve, settings.config);
    serve->add_option("MODEL", settings.model);
    serve->add_option("--max-port", settings.port)->check(CLI::Range(0, 65535));
    serve->add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", settings.prefix_caching);
    serve->add_option("--name", settings.names);
    serve->add_option("--api-key", settings.keys);
    one_value_per_flag(*serve);
    serve->callback([&] {
      resolve_settings(*serve, settings.config);
      settings.text = settings_text(*serve);
    });
    arguments.insert(arguments.begin(), "serve");
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
    return settings;
  }

  std::vector<std::string> environment_;
};

TEST_F(ConfigTest, CommandLineBeatsEnvironmentBeatsFileBeatsDefault) {
  EXPECT_EQ(parse({}).port, 8000);
  const std::string file = write_file("max-port = 1\nmodel = \"from-file\"\n");
  EXPECT_EQ(parse({"--config", file}).port, 1);
  EXPECT_EQ(parse({"--config", file}).model, "from-file");
  set_environment("MILLRACE_MAX_PORT", "2");
  EXPECT_EQ(parse({"--config", file}).port, 2);
  EXPECT_EQ(parse({"--config", file, "--max-port", "3", "here"}).port, 3);
  EXPECT_EQ(parse({"--config", file, "here"}).model, "here");
}

TEST_F(ConfigTest, FlagsAndListsComeFromEverySource) {
  const std::string file = write_file("enable-prefix-caching = false\nname = [\"a\", \"b\"]\n");
  const Settings from_file = parse({"--config", file});
  EXPECT_FALSE(from_file.prefix_caching);
  EXPECT_EQ(from_file.names, (std::vector<std::string>{"a", "b"}));
  set_environment("MILLRACE_NO_ENABLE_PREFIX_CACHING", "true");
  set_environment("MILLRACE_NAME", "c,d");
  const Settings from_environment = parse({});
  EXPECT_FALSE(from_environment.prefix_caching);
  EXPECT_EQ(from_environment.names, (std::vector<std::string>{"c", "d"}));
  set_environment("MILLRACE_CONFIG", write_file("max-port = 7\n"));
  EXPECT_EQ(parse({}).port, 7);
}

TEST_F(ConfigTest, WrongValuesAndUnknownKeysAreErrorsFromEverySource) {
  EXPECT_THROW(parse({"--config", write_file("max-prot = 1\n")}), CLI::ParseError);
  EXPECT_THROW(parse({"--config", write_file("max-port = 70000\n")}), CLI::ParseError);
  EXPECT_THROW(parse({"--config", "/nonexistent/file"}), CLI::ParseError);
  set_environment("MILLRACE_MAX_PORT", "many");
  EXPECT_THROW(parse({}), CLI::ParseError);
}

TEST_F(ConfigTest, AKubernetesServiceLinkIsNoSetting) {
  set_environment("MILLRACE_MAX_PORT", "tcp://10.0.0.1:8000");
  EXPECT_EQ(parse({}).port, 8000);
}

TEST_F(ConfigTest, WhatIsPrintedCanBeReadBackAndHoldsNoKey) {
  const Settings first = parse({"--max-port", "9", "--no-enable-prefix-caching", "--name", "x y",
                                "--api-key", "secret", "model.gguf"});
  EXPECT_EQ(first.model, "model.gguf") << "a repeatable flag takes one value at a time";
  EXPECT_EQ(first.text.find("secret"), std::string::npos);
  const Settings again = parse({"--config", write_file(first.text)});
  EXPECT_EQ(again.port, 9);
  EXPECT_FALSE(again.prefix_caching);
  EXPECT_EQ(again.names, first.names);
  EXPECT_EQ(again.model, "model.gguf");
}

}  // namespace
}  // namespace millrace::app
