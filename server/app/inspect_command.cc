// `millrace inspect MODEL` and `millrace plan MODEL`: what is in a checkpoint, and whether it fits,
// from headers alone.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/text/tokenizer.h"
#include "server/app/commands.h"
#include "server/app/local_model.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  LocalModelOptions model;
  bool json = false, tensors = false;
};

int failed(const char* command, const Status& status) {
  std::fprintf(stderr, "millrace %s: %s\n", command, status_message(status).c_str());
  return 1;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t d : shape) text += (text.empty() ? "" : " x ") + std::to_string(d);
  return text;
}

const char* scaling_name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::none: return "none";
    case RopeScaling::linear: return "linear";
    case RopeScaling::dynamic_ntk: return "dynamic";
    case RopeScaling::llama3: return "llama3";
    case RopeScaling::yarn: return "yarn";
    case RopeScaling::longrope: return "longrope";
  }
  return "?";
}

Json describe(const Checkpoint& checkpoint, const InspectOptions& o) {
  const ModelConfig& c = checkpoint.config();
  struct Total {
    int64_t tensors = 0, elements = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Total> totals;
  int64_t elements = 0;
  for (const TensorInfo& t : checkpoint.tensors()) {
    int64_t n = 1;
    for (const int64_t d : t.shape) n *= d;
    Total& total = totals[t.type];
    ++total.tensors, total.elements += n, total.bytes += t.bytes;
    elements += n;
  }
  Json out = {{"path", checkpoint.path()},
              {"format", checkpoint.format() == CheckpointFormat::gguf ? "gguf" : "safetensors"},
              {"name", checkpoint.model_name()},
              {"architecture", c.architecture},
              {"parameters", elements},
              {"layers", c.layers},
              {"hidden_size", c.hidden},
              {"intermediate_size", c.ffn},
              {"attention_heads", c.heads},
              {"key_value_heads", c.kv_heads},
              {"head_dim", c.head_dim},
              {"vocabulary_rows", c.vocab},
              {"max_positions", c.max_positions},
              {"rope_scaling", scaling_name(c.rope.scaling)},
              {"rope_theta", c.rope.theta},
              {"tied_embeddings", c.tied_embeddings},
              {"eos_tokens", c.eos_tokens},
              {"chat_template", !checkpoint.chat_template().empty()}};
  const auto tokenizer = checkpoint.load_tokenizer();
  if (tokenizer.ok())
    out["tokenizer_size"] = (*tokenizer)->size();
  else
    out["tokenizer_error"] = status_message(tokenizer.status());
  Json types = Json::object();
  for (const auto& [type, total] : totals)
    types[type] = {
        {"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
  out["types"] = std::move(types);
  if (!o.tensors) return out;
  Json tensors = Json::array();
  for (const TensorInfo& t : checkpoint.tensors())
    tensors.push_back({{"name", t.name}, {"type", t.type}, {"shape", t.shape}, {"bytes", t.bytes}});
  out["tensors"] = std::move(tensors);
  return out;
}

void print_table(const Json& out) {
  for (const auto& [name, value] : out.items()) {
    if (name == "types" || name == "tensors") continue;
    std::printf("%-20s %s\n", name.c_str(),
                value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
  std::printf("\n%-8s %8s %14s %14s\n", "type", "tensors", "elements", "bytes");
  for (const auto& [type, total] : out["types"].items())
    std::printf("%-8s %8s %14s %14s\n", type.c_str(), total["tensors"].dump().c_str(),
                total["elements"].dump().c_str(), total["bytes"].dump().c_str());
  if (!out.contains("tensors")) return;
  std::printf("\n");
  for (const Json& t : out["tensors"])
    std::printf("%-40s %-6s %-18s %12s\n", t["name"].get<std::string>().c_str(),
                t["type"].get<std::string>().c_str(),
                shape_text(t["shape"].get<std::vector<int64_t>>()).c_str(),
                t["bytes"].dump().c_str());
}

int run_inspect(const InspectOptions& o) {
  const auto checkpoint = Checkpoint::open(o.model.model);
  if (!checkpoint.ok()) return failed("inspect", checkpoint.status());
  const Json out = describe(**checkpoint, o);
  if (o.json)
    std::printf("%s\n", out.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  else
    print_table(out);
  return 0;
}

int run_plan(const InspectOptions& o) {
  const auto checkpoint = Checkpoint::open(o.model.model);
  if (!checkpoint.ok()) return failed("plan", checkpoint.status());
  const StatusOr<MemoryPlan> plan = plan_memory(o.model, **checkpoint);
  if (!plan.ok()) return failed("plan", plan.status());
  const uint64_t needed = plan->weight_bytes + plan->kv_bytes + plan->activation_bytes;
  const int64_t full = plan->tokens_in_pool() / plan->max_model_len;
  const Json out = {{"weight_bytes", plan->weight_bytes},
                    {"kv_bytes_per_token", plan->kv_bytes_per_token},
                    {"kv_cache_bytes", plan->kv_bytes},
                    {"kv_cache_tokens", plan->tokens_in_pool()},
                    {"activation_bytes", plan->activation_bytes},
                    {"total_bytes", needed},
                    {"available_bytes", plan->available_bytes},
                    {"fits", needed <= plan->available_bytes},
                    {"max_model_len", plan->max_model_len},
                    {"sequences_of_max_model_len", full},
                    {"context_of_max_num_seqs", plan->tokens_in_pool() / o.model.max_num_seqs}};
  if (o.json) {
    std::printf("%s\n", out.dump(2).c_str());
  } else {
    for (const auto& [name, value] : out.items())
      std::printf("%-28s %s\n", name.c_str(), value.dump().c_str());
  }
  return needed <= plan->available_bytes ? 0 : 1;
}

}  // namespace

void add_inspect_command(CLI::App& app, CommandResult& result) {
  CLI::App* inspect = app.add_subcommand("inspect", "Show what is in a checkpoint");
  auto options = std::make_shared<InspectOptions>();
  inspect->add_option("MODEL", options->model.model, "A GGUF file or a folder with safetensors.")
      ->required();
  inspect->add_flag("--json", options->json, "Print JSON.");
  inspect->add_flag("--tensors", options->tensors, "List every tensor.");
  inspect->callback(
      [options, &result] { result.run = [options] { return run_inspect(*options); }; });
}

void add_plan_command(CLI::App& app, CommandResult& result) {
  CLI::App* plan = app.add_subcommand("plan", "Show what memory a model would take, and what fits");
  plan->footer("Exit status: 0 if it fits into the memory that is free now, 1 if not.");
  auto options = std::make_shared<InspectOptions>();
  add_local_model_options(*plan, options->model);
  plan->add_flag("--json", options->json, "Print JSON.");
  plan->callback([options, &result] {
    if (options->model.model.empty()) throw CLI::RequiredError("MODEL");
    result.run = [options] { return run_plan(*options); };
  });
}

}  // namespace millrace::app
