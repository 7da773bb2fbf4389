#include "engine/exec/cpu_executor.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/anonymous_memory.h"
#include "engine/exec/step_builder.h"
#include "engine/sample/sampling_state.h"

namespace millrace {
namespace {

// Rows of logits computed at once: every running sequence's, within reason.
int64_t logit_batch_rows(const CpuExecutorOptions& o) {
  return std::clamp<int64_t>(o.kv.max_num_seqs, 1, 256);
}

// One pass of the model over `sequences` sequences that share `tokens` rows, without data.
size_t dry_run_bytes(const Model& model, const ModelConfig& config, const CpuExecutorOptions& o,
                     const Pool& pool, int64_t tokens, int64_t sequences) {
  Arena arena;
  Ctx ctx{Device::cpu, o.level, &pool, &arena, nullptr};
  const std::vector<int32_t> zeros(static_cast<size_t>(tokens), 0);
  std::vector<AttentionSequence> shares(static_cast<size_t>(sequences));
  const int64_t each = tokens / sequences;
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t count = i + 1 < sequences ? each : tokens - each * (sequences - 1);
    shares[static_cast<size_t>(i)] = {static_cast<int32_t>(i * each), static_cast<int32_t>(count),
                                      static_cast<int32_t>(o.kv.max_model_len), nullptr};
  }
  const std::vector<KvGroupPlan> groups = plan_kv_groups(config, o.kv);
  std::vector<Step::Group> step_groups(groups.size(), Step::Group{zeros, shares});
  std::vector<KvBinding> bindings(static_cast<size_t>(config.layers));
  for (size_t g = 0; g < groups.size(); ++g)
    for (const int layer : groups[g].layers)
      bindings[static_cast<size_t>(layer)] = {
          static_cast<int>(g),
          {nullptr, groups[g].block_bytes, o.kv.dtype, o.kv.block_size,
           static_cast<int>(config.kv_heads), static_cast<int>(config.head_dim), groups[g].window}};
  const Step step{zeros, zeros, step_groups, zeros};
  Scratch tmp(arena);
  model.forward(ctx, step, bindings, tmp({tokens, config.hidden}));
  const int64_t rows = std::min(tokens, logit_batch_rows(o));
  Tensor logits = tmp({rows, config.vocab});
  model.logits(ctx, logits, tmp({rows, config.hidden}));
  std::vector<SampledToken> sampled(static_cast<size_t>(rows));
  const std::vector<SamplingRow> sampling(static_cast<size_t>(rows));
  sample(ctx, sampled, logits, sampling, o.invalid_tokens);
  return arena.high_water();
}

size_t arena_bytes(const Model& model, const ModelConfig& config, const CpuExecutorOptions& o,
                   const Pool& pool) {
  const int64_t tokens = o.kv.max_num_batched_tokens;
  const int64_t most = std::min<int64_t>(o.kv.max_num_seqs, tokens);
  // One long chunk, all sequences at once, and the row counts below which ops take other paths.
  size_t bytes = 0;
  for (const int64_t sequences : {int64_t{1}, std::max<int64_t>(1, most / 2), most})
    bytes = std::max(bytes, dry_run_bytes(model, config, o, pool, tokens, sequences));
  bytes = std::max(bytes, dry_run_bytes(model, config, o, pool, most, most));
  return bytes + bytes / 8;
}

AnonymousMemory map_arena(size_t bytes) {
  AnonymousMemory memory = AnonymousMemory::map(bytes);
  if (!memory) fatal("the step arena cannot be mapped");
  return memory;
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const Model& model, const ModelConfig& config, CpuExecutorOptions options, KvCache kv)
      : model_(model),
        options_(std::move(options)),
        hidden_size_(config.hidden),
        kv_(std::move(kv)),
        pool_(options_.threads > 0 ? options_.threads : available_cpus()),
        memory_(map_arena(arena_bytes(model, config, options_, pool_))),
        arena_(memory_.data(), memory_.size()),
        ctx_{Device::cpu, options_.level, &pool_, &arena_, nullptr},
        builder_(static_cast<int>(kv_.group_infos().size()), options_.kv.block_size),
        states_(static_cast<size_t>(options_.kv.max_num_seqs)) {
    info_.vocab = config.vocab;
    info_.block_size = options_.kv.block_size;
    info_.max_num_seqs = options_.kv.max_num_seqs;
    info_.max_num_batched_tokens = options_.kv.max_num_batched_tokens;
    info_.groups = kv_.group_infos();
    thread_ = std::thread([this] { run(); });
  }

  ~CpuExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_device_.notify_one();
    thread_.join();
  }

  const ExecutorInfo& info() const override { return info_; }

  void submit(StepPlan plan) override {
    {
      const std::lock_guard lock(mutex_);
      MR_CHECK_OP(in_flight_, <, 2);
      ++in_flight_;
      plans_.push_back(std::move(plan));
    }
    wake_device_.notify_one();
  }

  int in_flight() const override {
    const std::lock_guard lock(mutex_);
    return in_flight_;
  }

  std::optional<StepResult> take_result(bool wait) override {
    std::unique_lock lock(mutex_);
    if (in_flight_ == 0) return std::nullopt;
    if (wait) wake_engine_.wait(lock, [&] { return !results_.empty(); });
    if (results_.empty()) return std::nullopt;
    StepResult result = std::move(results_.front());
    results_.pop_front();
    --in_flight_;
    return result;
  }

 private:
  void run() {
    while (true) {
      StepPlan plan;
      {
        std::unique_lock lock(mutex_);
        wake_device_.wait(lock, [&] { return stopping_ || !plans_.empty(); });
        if (plans_.empty()) return;
        plan = std::move(plans_.front());
        plans_.pop_front();
      }
      StepResult result = compute(plan);
      {
        const std::lock_guard lock(mutex_);
        results_.push_back(std::move(result));
      }
      wake_engine_.notify_one();
    }
  }

  StepResult compute(const StepPlan& plan) {
    const TimePoint begin = Clock::now();
    StepResult result;
    result.outputs.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      const StepSequence& s = plan.sequences[i];
      result.outputs[i].slot = s.slot;
      if (s.begin)
        states_[static_cast<size_t>(s.slot)] =
            SamplingState(s.begin->sampling, s.begin->stop, s.begin->eos_tokens, s.begin->tokens,
                          s.begin->prompt_size);
    }
    const Step step = builder_.build(plan, states_);
    Scratch tmp(arena_);
    const auto rows = static_cast<int64_t>(step.logit_rows.size());
    Tensor hidden = tmp({rows, hidden_size_});
    model_.forward(ctx_, step, kv_.bindings(), hidden);
    const int64_t batch = logit_batch_rows(options_);
    for (int64_t r = 0; r < rows; r += batch)
      choose(plan, hidden.rows(r, std::min(batch, rows - r)), r, result);
    result.seconds = seconds_between(begin, Clock::now());
    return result;
  }

  // Logits of hidden [R, H], the rows first_row.. of the step, then a token or a score for each.
  void choose(const StepPlan& plan, Tensor hidden, int64_t first_row, StepResult& result) {
    const int64_t rows = hidden.dim(0);
    Scratch tmp(arena_);
    Tensor logits = tmp({rows, info_.vocab});
    model_.logits(ctx_, logits, hidden);
    // Runs of rows of one kind: scored rows of one sequence, or sampled rows of neighbours.
    for (int64_t r = 0; r < rows;) {
      const auto& owners = builder_.logit_rows();
      const auto owner = [&](int64_t i) { return owners[static_cast<size_t>(first_row + i)]; };
      int64_t end = r + 1;
      if (owner(r).score_index < 0) {
        while (end < rows && owner(end).score_index < 0) ++end;
        sample_rows(plan, logits.rows(r, end - r), first_row + r, result);
      } else {
        while (end < rows && owner(end).score_index >= 0 &&
               owner(end).sequence == owner(r).sequence)
          ++end;
        score_rows(plan, logits.rows(r, end - r), first_row + r, result);
      }
      r = end;
    }
  }

  void sample_rows(const StepPlan& plan, Tensor logits, int64_t first_row, StepResult& result) {
    const auto rows = static_cast<size_t>(logits.dim(0));
    sampling_.clear();
    sampled_.resize(rows);
    for (size_t r = 0; r < rows; ++r)
      sampling_.push_back(state_of(plan, first_row + static_cast<int64_t>(r)).row());
    sample(ctx_, sampled_, logits, sampling_, options_.invalid_tokens);
    for (size_t r = 0; r < rows; ++r) {
      const auto index = static_cast<size_t>(first_row) + r;
      StepOutput& out = result.outputs[static_cast<size_t>(builder_.logit_rows()[index].sequence)];
      const SampledToken& s = sampled_[r];
      if (s.token < 0) {
        out.error = "the model's scores hold no number, or no token is allowed";
        continue;
      }
      out.token = s.token;
      out.logprob = s.logprob;
      for (int i = 0; i < s.num_top; ++i) out.top.push_back({s.top[i].token, s.top[i].logprob});
      state_of(plan, static_cast<int64_t>(index)).accept(s.token);
    }
  }

  void score_rows(const StepPlan& plan, Tensor logits, int64_t first_row, StepResult& result) {
    const auto rows = static_cast<size_t>(logits.dim(0));
    const StepBuilder::LogitRow first = builder_.logit_rows()[static_cast<size_t>(first_row)];
    const StepSequence& s = plan.sequences[static_cast<size_t>(first.sequence)];
    const std::span<const Token> targets(s.score_targets.data() + first.score_index, rows);
    sampled_.resize(rows);
    const int num_top = std::max(0, state_of(plan, first_row).prompt_logprobs());
    score_tokens(ctx_, sampled_, logits, targets, num_top, options_.invalid_tokens);
    std::vector<PromptScore>& scores =
        result.outputs[static_cast<size_t>(first.sequence)].prompt_scores;
    for (size_t r = 0; r < rows; ++r) {
      PromptScore score{targets[r], sampled_[r].logprob, {}};
      for (int i = 0; i < sampled_[r].num_top; ++i)
        score.top.push_back({sampled_[r].top[i].token, sampled_[r].top[i].logprob});
      scores.push_back(std::move(score));
    }
  }

  SamplingState& state_of(const StepPlan& plan, int64_t logit_row) {
    const auto sequence = builder_.logit_rows()[static_cast<size_t>(logit_row)].sequence;
    return states_[static_cast<size_t>(plan.sequences[static_cast<size_t>(sequence)].slot)];
  }

  const Model& model_;
  const CpuExecutorOptions options_;
  const int64_t hidden_size_;
  ExecutorInfo info_;
  KvCache kv_;
  Pool pool_;
  AnonymousMemory memory_;

  // Device thread only.
  Arena arena_;
  Ctx ctx_;
  StepBuilder builder_;
  std::vector<SamplingState> states_;  // [max_num_seqs]
  std::vector<SamplingRow> sampling_;
  std::vector<SampledToken> sampled_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable wake_device_, wake_engine_;
  std::deque<StepPlan> plans_;
  std::deque<StepResult> results_;
  int in_flight_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace

int64_t activation_bytes(const Model& model, const ModelConfig& config,
                         const CpuExecutorOptions& options) {
  const Pool pool(1);
  return static_cast<int64_t>(arena_bytes(model, config, options, pool));
}

StatusOr<std::unique_ptr<Executor>> make_cpu_executor(const Model& model, const ModelConfig& config,
                                                      CpuExecutorOptions options) {
  MR_ASSIGN_OR_RETURN(KvCache kv, KvCache::create(config, options.kv));
  return std::unique_ptr<Executor>(
      new CpuExecutor(model, config, std::move(options), std::move(kv)));
}

}  // namespace millrace
