// What a run asks for: the bodies of its requests and when each is due. Made before the run, so
// that nothing is composed while answers are timed. The same options and seed give the same bytes.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace millrace::bench {

constexpr const char* kCompletionsPath = "/v1/completions";
constexpr const char* kChatPath = "/v1/chat/completions";

struct WorkloadOptions {
  std::string model;
  std::string endpoint = kCompletionsPath;
  int num_prompts = 0;  // 0: all rows of a trace, 1,000 without one
  uint64_t seed = 0;

  // Random prompts: `random_prefix_len` ids that all share, then `random_input_len` of their own.
  // For chat they are as many words, each about one token.
  int random_input_len = 1024;
  int random_output_len = 128;
  int random_prefix_len = 0;
  int vocab_size = 32000;  // ids are drawn from [100, vocab_size)

  // A JSON object whose fields every random prompt's request has too, before those that we set
  // ourselves: sampling, say, which is greedy otherwise.
  std::string extra_body;

  std::string trace;  // a file of request bodies, one a line, instead of random prompts
  // Whether answers go on behind an end-of-sequence token up to their exact length. Unset: yes for
  // random prompts, as each row says for a trace.
  std::optional<bool> ignore_eos;

  double request_rate = std::numeric_limits<double>::infinity();  // requests/s; inf: all are due
  double burstiness = 1.0;  // shape of the gamma distribution of the gaps; 1: a Poisson process
};

struct LoadRequest {
  std::string path;
  std::string body;
  double due_s = 0.0;
  int prompt_tokens = 0;    // 0: only the server knows
  int expected_tokens = 0;  // the exact length that was asked for; 0: the model may end early
};

struct Workload {
  std::vector<LoadRequest> requests;
  std::vector<LoadRequest> warmups;  // of the same kind, not measured
};

// `num_warmups` requests besides: other random prompts, so that no prompt is measured that a prefix
// cache has seen, or the first rows of a trace. `warm_prefix`: one that is the shared prefix.
StatusOr<Workload> make_workload(const WorkloadOptions& options, int num_warmups, bool warm_prefix);

// When each of `count` requests is due: the first at once, gaps with mean 1/rate.
std::vector<double> arrival_times(int count, double rate, double burstiness, uint64_t seed);

}  // namespace millrace::bench
