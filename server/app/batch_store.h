// BatchStore: the durable side of a batch run, so that a run killed at any moment can be repeated
// and every row is answered exactly once. Beside OUT it keeps
//   OUT.lock      held by the one process that writes
//   OUT.manifest  what the run is of: hash of the input, settings; a rerun must agree
//   OUT.partial   "<line number> <answer>\n", appended as answers come; a torn last line is cut
// and at the end writes OUT in the order of the input, whole or not at all, and removes all but the
// manifest: by it a repeated run knows that OUT is its own and complete. A partial file without a
// manifest is of no run. One owner, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace millrace::app {

class BatchStore {
 public:
  // FAILED_PRECONDITION: another process writes, the output exists, or the manifest is of another
  // run.
  static StatusOr<BatchStore> open(const std::string& out_path, const std::string& manifest);
  ~BatchStore();
  BatchStore(BatchStore&& other) noexcept;
  BatchStore& operator=(BatchStore&&) = delete;

  bool has(int64_t line) const { return offsets_.contains(line); }
  int64_t rows() const { return static_cast<int64_t>(offsets_.size()); }
  bool resumed() const { return resumed_; }
  bool complete() const { return complete_; }  // OUT has every answer: nothing is left to do
  // Adds the answer of a line that has none. It survives the death of this process at once, and of
  // the machine after the next sync().
  Status append(int64_t line, std::string_view answer);
  Status sync();
  // Writes OUT from all answers and removes what only an unfinished run needs.
  Status finish();

 private:
  BatchStore() = default;
  Status lock();
  Status check_manifest(const std::string& manifest);
  Status read_partial();

  std::string out_path_;
  int lock_fd_ = -1;
  int partial_fd_ = -1;
  bool resumed_ = false;
  bool complete_ = false;
  uint64_t size_ = 0;  // of the partial file
  struct Span {
    uint64_t offset;  // of the answer
    uint32_t bytes;
  };
  std::map<int64_t, Span> offsets_;  // by line number
};

}  // namespace millrace::app
