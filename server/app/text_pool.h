// TextPool: a few threads for work whose cost depends on the text of a request (JSON, templates,
// tokenising), which has no place on the io thread. Bounded. Any thread may call try_run().
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

namespace millrace::app {

class TextPool {
 public:
  TextPool(int threads, size_t max_jobs);
  ~TextPool();  // stop()

  // False if max_jobs wait already, or after stop().
  bool try_run(std::function<void()> job);
  // Joins the threads and returns the jobs that still waited, unrun: the caller destroys them on
  // the thread that their captures belong to.
  std::deque<std::function<void()>> stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::app
