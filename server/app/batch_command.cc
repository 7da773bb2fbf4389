// `millrace batch MODEL -i IN -o OUT`: OpenAI batch rows answered by an engine in this process, as
// many at once as it runs, resumable after any crash.
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "server/api/json_text.h"
#include "server/app/batch_input.h"
#include "server/app/batch_store.h"
#include "server/app/commands.h"
#include "server/app/local_model.h"

namespace millrace::app {
namespace {

constexpr int kExitFailedRows = 1;
constexpr int kExitNotStarted = 2;
constexpr double kSyncSeconds = 1.0;

struct BatchOptions {
  LocalModelOptions model;
  std::string input, output;
  uint64_t seed = 0;
  int max_in_flight = 0;  // rows; 0: four for each sequence that may run
};

// Lists of events from the engine thread to the main thread.
class EventQueue {
 public:
  void push(std::vector<TokenEvent>&& events) {
    const std::lock_guard lock(mutex_);
    lists_.push_back(std::move(events));
    ready_.notify_one();
  }
  std::vector<TokenEvent> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !lists_.empty(); });
    std::vector<TokenEvent> list = std::move(lists_.front());
    lists_.pop_front();
    return list;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::vector<TokenEvent>> lists_;
};

// "Batch 120/300 rows, 3 failed, 251 tok/s, 0:32 left" on a terminal.
class Progress {
 public:
  Progress(int64_t total, int64_t done) : total_(total), before_(done) {}
  ~Progress() {
    if (drawn_) std::fputc('\n', stderr);
  }
  void update(int64_t done, int64_t failed, int64_t tokens, bool last) {
    const TimePoint now = Clock::now();
    if (!terminal_ || (!last && seconds_between(drawn_at_, now) < 0.2)) return;
    drawn_at_ = now;
    drawn_ = true;
    const double seconds = seconds_between(start_, now);
    const double rate = static_cast<double>(done - before_) / std::max(seconds, 1e-3);
    const auto left =
        rate > 0.0 ? static_cast<int64_t>(static_cast<double>(total_ - done) / rate) : 0;
    std::fprintf(stderr, "\rBatch %lld/%lld rows, %lld failed, %.0f tok/s, %lld:%02lld left \033[K",
                 static_cast<long long>(done), static_cast<long long>(total_),
                 static_cast<long long>(failed),
                 static_cast<double>(tokens) / std::max(seconds, 1e-3),
                 static_cast<long long>(left / 60), static_cast<long long>(left % 60));
  }

 private:
  const int64_t total_, before_;
  const bool terminal_ = ::isatty(2) != 0;
  const TimePoint start_ = Clock::now();
  TimePoint drawn_at_{};
  bool drawn_ = false;
};

// One line of the output file.
std::string answer_line(int64_t line, const std::string& custom_id, int status,
                        std::string_view body_json, const RowError* error) {
  const std::string id = "batch_req_" + std::to_string(line);
  std::string out = "{\"id\":\"" + id + "\",\"custom_id\":";
  if (custom_id.empty())
    out += "null";
  else
    api::append_json_string(out, custom_id);
  if (error) {
    out += ",\"response\":null,\"error\":{\"code\":";
    api::append_json_string(out, error->code);
    out += ",\"message\":";
    api::append_json_string(out, "line " + std::to_string(line) + ": " + error->message);
    out += ",\"line\":" + std::to_string(line) + "}}";
    return out;
  }
  out += ",\"response\":{\"status_code\":" + std::to_string(status) + ",\"request_id\":\"" + id +
         "\",\"body\":";
  out += body_json;
  out += "},\"error\":null}";
  return out;
}

class BatchRun {
 public:
  BatchRun(const GenerationContext& context, Engine& engine, EventQueue& events, BatchStore& store,
           int64_t rows, int64_t created, const BatchOptions& options)
      : context_(context),
        engine_(engine),
        events_(events),
        store_(store),
        created_(created),
        options_(options),
        window_(options.max_in_flight > 0 ? options.max_in_flight : 4 * options.model.max_num_seqs),
        total_(rows),
        progress_(rows, store.rows()) {}

  Status run(LineReader& reader) {
    bool more = true;
    while (more || !open_.empty()) {
      if (more && !waiting_ && static_cast<int>(open_.size()) < window_) {
        const auto line = reader.next();
        more = line.has_value();
        if (more && !store_.has(line->number)) MR_RETURN_IF_ERROR(begin(*line));
        continue;
      }
      for (const TokenEvent& event : events_.pop()) MR_RETURN_IF_ERROR(on_event(event));
      progress_.update(store_.rows(), failed_, tokens_, false);
      if (seconds_between(synced_, Clock::now()) > kSyncSeconds) {
        MR_RETURN_IF_ERROR(store_.sync());
        synced_ = Clock::now();
      }
    }
    progress_.update(store_.rows(), failed_, tokens_, true);
    MR_RETURN_IF_ERROR(reader.status());
    if (store_.rows() == total_) return absl::OkStatus();
    return absl::DataLossError("the input changed while it was read");
  }

  int64_t tokens() const { return tokens_; }

 private:
  struct Open {
    int64_t line;
    std::string custom_id;
    std::unique_ptr<Generation> generation;
  };

  Status begin(const LineReader::Line& line) {
    std::variant<BatchRow, RowError> parsed = parse_row(line);
    if (const RowError* error = std::get_if<RowError>(&parsed)) {
      ++failed_;
      return store_.append(line.number, answer_line(line.number, error->custom_id, 0, {}, error));
    }
    const BatchRow& row = std::get<BatchRow>(parsed);
    const uint64_t seed = options_.seed + static_cast<uint64_t>(line.number);
    api::Result<Prepared> prepared = context_.prepare(row.route, row.body, seed);
    if (!prepared.ok()) return refuse(line.number, row.custom_id, prepared.error());

    const char* prefix = row.route == api::Route::chat ? "chatcmpl-" : "cmpl-";
    AnswerIdentity identity{.id = prefix + std::string("batch-") + std::to_string(line.number),
                            .created = created_,
                            .report_cached_tokens = false};
    auto open = std::make_shared<Open>(
        Open{line.number, row.custom_id,
             std::make_unique<Generation>(context_, *std::move(prepared), std::move(identity))});
    const size_t count = open->generation->num_requests();
    const RequestId first = next_id_;
    next_id_ += count;
    for (Request& request : open->generation->take_requests(first, Clock::now())) {
      const RequestId id = request.id;
      by_request_.emplace(id, open);
      const Status status = engine_.submit(std::move(request));
      if (status.ok()) continue;
      for (size_t k = 0; k < count; ++k) {
        if (first + k < id) engine_.cancel(first + k);
        by_request_.erase(first + k);
      }
      // A full engine has room again once one of the rows before this one has ended.
      if (absl::IsResourceExhausted(status) && !open_.empty()) {
        waiting_ = line;
        return absl::OkStatus();
      }
      return refuse(line.number, row.custom_id, api::error_from_status(status));
    }
    open_.emplace(line.number, open);
    return absl::OkStatus();
  }

  Status refuse(int64_t line, const std::string& custom_id, const api::Error& error) {
    ++failed_;
    return store_.append(
        line, answer_line(line, custom_id, error.http_status, api::error_json(error), nullptr));
  }

  Status on_event(const TokenEvent& event) {
    const auto found = by_request_.find(event.id);
    if (found == by_request_.end()) return absl::OkStatus();
    const std::shared_ptr<Open> open = found->second;
    Generation& generation = *open->generation;
    if (event.token >= 0) ++tokens_;
    const bool was_finished = generation.finished();
    generation.on_event(event);
    for (const RequestId id : generation.take_cancels()) engine_.cancel(id);
    if (event.finish != Finish::none) by_request_.erase(found);
    if (was_finished || !generation.finished()) return absl::OkStatus();
    open_.erase(open->line);
    MR_RETURN_IF_ERROR(end(*open));
    if (!waiting_) return absl::OkStatus();
    const LineReader::Line line = *std::exchange(waiting_, std::nullopt);
    return begin(line);
  }

  Status end(const Open& open) {
    const Generation& generation = *open.generation;
    if (generation.error()) return refuse(open.line, open.custom_id, *generation.error());
    return store_.append(
        open.line, answer_line(open.line, open.custom_id, 200, generation.whole_answer(), nullptr));
  }

  const GenerationContext& context_;
  Engine& engine_;
  EventQueue& events_;
  BatchStore& store_;
  const int64_t created_;
  const BatchOptions& options_;
  const int window_;
  const int64_t total_;
  Progress progress_;
  std::unordered_map<int64_t, std::shared_ptr<Open>> open_;  // by line
  std::unordered_map<RequestId, std::shared_ptr<Open>> by_request_;
  std::optional<LineReader::Line> waiting_;  // a row that the engine had no room for
  RequestId next_id_ = 1;
  int64_t failed_ = 0, tokens_ = 0;
  TimePoint synced_ = Clock::now();
};

// Failed rows of a finished output: those with an error or a status other than 200.
int64_t count_failed(const std::string& path) {
  int64_t failed = 0;
  auto reader = LineReader::open(path, size_t{1} << 30);
  if (!reader.ok()) return 0;
  while (const auto line = reader->next())
    failed += line->text.find("\"response\":{\"status_code\":200,") == std::string::npos;
  return failed;
}

// What the answers depend on.
StatusOr<std::string> manifest_of(const BatchOptions& o, const GenerationContext& context,
                                  const BatchSurvey& survey, int64_t created) {
  std::string chat_template;
  if (!o.model.chat_template_file.empty()) {
    MR_ASSIGN_OR_RETURN(chat_template, sha256_of_file(o.model.chat_template_file));
  }
  const nlohmann::ordered_json manifest = {
      {"input_sha256", survey.sha256},
      {"rows", survey.rows},
      {"created", created},
      {"model", context.options().model_names},
      {"model_fingerprint", context.options().system_fingerprint},
      {"chat_template_sha256", chat_template},
      {"max_model_len", context.options().max_model_len},
      {"seed", o.seed}};
  return manifest.dump(1) + "\n";
}

int not_started(const Status& status) {
  std::fprintf(stderr, "millrace batch: %s\n", status_message(status).c_str());
  return kExitNotStarted;
}

Status check_paths(const BatchOptions& o) {
  for (const char* suffix : {"", ".next", ".partial", ".manifest", ".lock"}) {
    const std::string written = o.output + suffix;
    std::error_code ignored;
    if (std::filesystem::equivalent(o.input, written, ignored) || o.input == written)
      return absl::InvalidArgumentError("the output must not be the input, " + o.input + ": " +
                                        written + " would be overwritten");
  }
  return absl::OkStatus();
}

int run_batch(BatchOptions& o) {
  if (const Status status = check_paths(o); !status.ok()) return not_started(status);
  const size_t max_line = o.model.limits.max_body_bytes + (64 << 10);
  const StatusOr<BatchSurvey> survey = survey_batch(o.input, max_line);
  if (!survey.ok()) return not_started(survey.status());
  struct stat info = {};
  ::stat(o.input.c_str(), &info);
  const auto created = static_cast<int64_t>(info.st_mtime);

  auto model = LocalModel::load(o.model, {});
  if (!model.ok()) return not_started(model.status());
  const GenerationContext& context = (*model)->context();
  const StatusOr<std::string> manifest = manifest_of(o, context, *survey, created);
  if (!manifest.ok()) return not_started(manifest.status());
  StatusOr<BatchStore> store = BatchStore::open(o.output, *manifest);
  if (!store.ok()) return not_started(store.status());
  if (store->complete()) {
    const int64_t failed = count_failed(o.output);
    std::fprintf(stderr, "%s is complete: %lld rows, %lld failed\n", o.output.c_str(),
                 static_cast<long long>(survey->rows), static_cast<long long>(failed));
    return failed > 0 ? kExitFailedRows : 0;
  }
  StatusOr<LineReader> reader = LineReader::open(o.input, max_line);
  if (!reader.ok()) return not_started(reader.status());

  EventQueue events;
  auto engine = (*model)->start_engine(
      [&events](std::vector<TokenEvent>&& list) { events.push(std::move(list)); });
  if (!engine.ok()) return not_started(engine.status());
  const TimePoint start = Clock::now();
  const int64_t before = store->rows();
  BatchRun run(context, **engine, events, *store, survey->rows, created, o);
  Status status = run.run(*reader);
  if (status.ok()) status = store->finish();
  if (!status.ok()) {
    std::fprintf(stderr, "millrace batch: %s\n", status_message(status).c_str());
    return kExitNotStarted;
  }
  const int64_t failed = count_failed(o.output);
  const double seconds = seconds_between(start, Clock::now());
  std::fprintf(stderr, "%lld rows in %s, %lld failed; %lld answered now in %.1f s, %.1f tok/s\n",
               static_cast<long long>(survey->rows), o.output.c_str(),
               static_cast<long long>(failed), static_cast<long long>(survey->rows - before),
               seconds, static_cast<double>(run.tokens()) / seconds);
  return failed > 0 ? kExitFailedRows : 0;
}

}  // namespace

void add_batch_command(CLI::App& app, CommandResult& result) {
  CLI::App* batch = app.add_subcommand(
      "batch", "Answer the rows of an OpenAI batch file; resumable after any crash");
  batch->footer("Exit status: 0 all rows succeeded, 1 some failed, 2 could not start.");
  auto options = std::make_shared<BatchOptions>();
  add_local_model_options(*batch, options->model);
  batch->add_option("-i,--input-file", options->input, "Batch rows, one JSON object a line.")
      ->required();
  batch->add_option("-o,--output-file", options->output, "Answers, in the order of the input.")
      ->required();
  batch->add_option("--seed", options->seed,
                    "Row N without a seed of its own is drawn with this plus N.");
  batch
      ->add_option("--max-in-flight", options->max_in_flight,
                   "Rows in the engine at once; 0 takes four for each running sequence.")
      ->check(CLI::Range(0, 1'000'000));
  batch->callback([options, &result] {
    if (options->model.model.empty()) throw CLI::RequiredError("MODEL");
    result.run = [options] { return run_batch(*options); };
  });
}

}  // namespace millrace::app
