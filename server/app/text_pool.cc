#include "server/app/text_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace::app {

struct TextPool::Impl {
  size_t max_jobs;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> jobs;  // guarded by mutex
  bool stopping = false;                   // guarded by mutex
  std::vector<std::thread> threads;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return stopping || !jobs.empty(); });
      if (stopping) return;
      std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    }
  }
};

TextPool::TextPool(int threads, size_t max_jobs) : impl_(std::make_unique<Impl>()) {
  impl_->max_jobs = max_jobs;
  for (int i = 0; i < std::max(threads, 1); ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run(); });
  }
}

TextPool::~TextPool() { stop(); }

bool TextPool::try_run(std::function<void()> job) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->stopping || impl_->jobs.size() >= impl_->max_jobs) return false;
    impl_->jobs.push_back(std::move(job));
  }
  impl_->wake.notify_one();
  return true;
}

std::deque<std::function<void()>> TextPool::stop() {
  std::deque<std::function<void()>> waiting;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    waiting.swap(impl_->jobs);
  }
  impl_->wake.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
  return waiting;
}

}  // namespace millrace::app
