// `millrace chat MODEL`: talk to a model in the terminal, or ask once with --prompt.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "server/app/commands.h"
#include "server/app/local_model.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

struct ChatOptions {
  LocalModelOptions model;
  std::string prompt, system;
  double temperature = -1.0;  // below 0: the model's default
  int64_t max_tokens = 0;     // 0: what the context leaves
  int64_t seed = -1;
};

// Set by Ctrl-C; ends the answer that is being written.
volatile std::sig_atomic_t interrupted = 0;

class Events {
 public:
  void push(std::vector<TokenEvent>&& events) {
    const std::lock_guard lock(mutex_);
    for (TokenEvent& event : events) events_.push_back(std::move(event));
    ready_.notify_one();
  }
  // Nothing after a short wait, so that the caller can look at Ctrl-C.
  std::optional<TokenEvent> pop() {
    std::unique_lock lock(mutex_);
    if (!ready_.wait_for(lock, std::chrono::milliseconds(50), [&] { return !events_.empty(); }))
      return std::nullopt;
    TokenEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<TokenEvent> events_;
};

class Conversation {
 public:
  Conversation(const ChatOptions& options, const GenerationContext& context, Engine& engine,
               Events& events)
      : options_(options), context_(context), engine_(engine), events_(events) {
    reset();
  }

  void reset() {
    messages_ = Json::array();
    if (!options_.system.empty())
      messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }

  // Writes the answer to standard output as it comes. False if the request was refused.
  bool ask(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    Json body = {{"messages", messages_}, {"stream", true}};
    if (options_.temperature >= 0.0) body["temperature"] = options_.temperature;
    if (options_.max_tokens > 0) body["max_tokens"] = options_.max_tokens;
    if (options_.seed >= 0) body["seed"] = options_.seed;
    const std::string request = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    api::Result<Prepared> prepared = context_.prepare(api::Route::chat, request);
    if (!prepared.ok()) return refused(prepared.error().message);

    Generation generation(context_, *std::move(prepared), {.id = "chat"});
    std::vector<Request> requests = generation.take_requests(next_id_, Clock::now());
    const Status status = engine_.submit(std::move(requests.front()));
    if (!status.ok()) return refused(status_message(status));
    const std::string answer = follow(generation);
    std::printf("\n");
    messages_.push_back({{"role", "assistant"}, {"content", answer}});
    next_id_ += 1;
    if (!generation.error() || interrupted) return true;
    std::fprintf(stderr, "%s\n", generation.error()->message.c_str());
    return false;
  }

 private:
  bool refused(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    messages_.erase(messages_.size() - 1);
    return false;
  }

  std::string follow(Generation& generation) {
    std::string answer;
    bool cancelled = false;
    while (!generation.drained()) {
      if (interrupted && !std::exchange(cancelled, true)) engine_.cancel(next_id_);
      const std::optional<TokenEvent> event = events_.pop();
      if (!event) continue;
      generation.on_event(*event);
      for (const RequestId id : generation.take_cancels()) engine_.cancel(id);
      print(generation.take_output(), answer);
    }
    return answer;
  }

  // The text of the chunks of a stream.
  static void print(const std::string& events, std::string& answer) {
    constexpr std::string_view kData = "data: ";
    size_t begin = 0;
    for (size_t end; (end = events.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
      const Json chunk = Json::parse(
          events.substr(begin + kData.size(), end - begin - kData.size()), nullptr, false);
      if (!chunk.is_object() || !chunk.contains("choices")) continue;
      for (const Json& choice : chunk["choices"]) {
        const std::string text = choice["delta"].value("content", "");
        std::fputs(text.c_str(), stdout);
        answer += text;
      }
    }
    std::fflush(stdout);
  }

  const ChatOptions& options_;
  const GenerationContext& context_;
  Engine& engine_;
  Events& events_;
  Json messages_;
  RequestId next_id_ = 1;
};

constexpr char kHelp[] =
    "/help    this text\n/reset   forget the conversation\n/exit    end (also Ctrl-D)\n"
    "Ctrl-C stops an answer; at the prompt it ends the program.\n";

void interrupt(int) {
  if (interrupted) ::_exit(128 + SIGINT);
  interrupted = 1;
}

void talk(Conversation& conversation) {
  const bool terminal = ::isatty(0) != 0;
  if (terminal) std::printf("%s", kHelp);
  std::string line;
  while (true) {
    std::signal(SIGINT, SIG_DFL);
    if (terminal) std::printf("> "), std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line == "/help") {
      std::printf("%s", kHelp);
    } else if (line == "/reset") {
      conversation.reset();
    } else if (line.starts_with('/')) {
      std::printf("%s is no command; /help lists them\n", line.c_str());
    } else if (!line.empty()) {
      interrupted = 0;
      std::signal(SIGINT, interrupt);
      conversation.ask(line);
    }
  }
}

int run_chat(const ChatOptions& o) {
  const auto failed = [](const Status& status) {
    std::fprintf(stderr, "millrace chat: %s\n", status_message(status).c_str());
    return 1;
  };
  auto model = LocalModel::load(o.model, {});
  if (!model.ok()) return failed(model.status());
  Events events;
  auto engine = (*model)->start_engine(
      [&events](std::vector<TokenEvent>&& list) { events.push(std::move(list)); });
  if (!engine.ok()) return failed(engine.status());
  Conversation conversation(o, (*model)->context(), **engine, events);
  if (!o.prompt.empty()) return conversation.ask(o.prompt) ? 0 : 1;
  talk(conversation);
  return 0;
}

}  // namespace

void add_chat_command(CLI::App& app, CommandResult& result) {
  CLI::App* chat = app.add_subcommand("chat", "Talk to a model in the terminal");
  auto options = std::make_shared<ChatOptions>();
  options->model.max_num_seqs = 1;
  add_local_model_options(*chat, options->model);
  chat->add_option("--prompt", options->prompt, "Ask this once and end.");
  chat->add_option("--system", options->system, "System message.");
  chat->add_option("--temperature", options->temperature, "Sampling temperature; 0 is greedy.")
      ->check(CLI::Range(0.0, 2.0));
  chat->add_option("--max-tokens", options->max_tokens, "Longest answer; 0 is up to the context.")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  chat->add_option("--seed", options->seed, "Seed of the sampling; -1 draws one.")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 62));
  chat->callback([options, &result] {
    if (options->model.model.empty()) throw CLI::RequiredError("MODEL");
    result.run = [options] { return run_chat(*options); };
  });
}

}  // namespace millrace::app
