#include "server/app/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace millrace::app {

namespace {

constexpr int kWidth = 30;
constexpr double kRedrawSeconds = 0.1;
constexpr double kMegabyte = 1e6;

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), enabled_(::isatty(STDERR_FILENO) == 1), start_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputc('\n', stderr);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  if (!enabled_ || total == 0) return;
  const TimePoint now = Clock::now();
  if (drawn_ && done < total && seconds_between(last_drawn_, now) < kRedrawSeconds) return;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double elapsed = std::max(1e-3, seconds_between(start_, now));
  const int filled = static_cast<int>(share * kWidth);
  std::string bar(static_cast<size_t>(filled), '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r%s [%s] %3.0f%% %.0f of %.0f MB, %.0f MB/s", label_.c_str(), bar.c_str(),
               share * 100.0, static_cast<double>(done) / kMegabyte,
               static_cast<double>(total) / kMegabyte,
               static_cast<double>(done) / kMegabyte / elapsed);
  std::fflush(stderr);
  last_drawn_ = now;
  drawn_ = true;
}

}  // namespace millrace::app
