// TextPool: a few threads for work whose cost depends on the text of a request (JSON, templates,
// tokenising), which has no place on the io thread. Bounded. Any thread may call try_run().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace millrace::app {

class TextPool {
 public:
  TextPool(int threads, size_t max_jobs);
  ~TextPool();  // stop()

  // False if max_jobs wait already, or after stop().
  bool try_run(std::function<void()> job);
  // Drops what waits and joins the threads.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::app
