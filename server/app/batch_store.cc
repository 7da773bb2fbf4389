#include "server/app/batch_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace millrace::app {
namespace {

constexpr size_t kCopyBytes = 256 << 10;

Status file_error(const std::string& path, const char* what) {
  return absl::InternalError(path + " cannot be " + what + ": " + std::strerror(errno));
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Status write_all(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(path, "written");
    text.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

// Writes a file that is there whole or not at all, and survives a crash of the machine.
template <class Fill>
Status write_atomically(const std::string& path, Fill&& fill) {
  const std::string next = path + ".next";
  const int fd = ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return file_error(next, "made");
  Status status = fill(fd, next);
  if (status.ok() && ::fsync(fd) != 0) status = file_error(next, "written");
  ::close(fd);
  MR_RETURN_IF_ERROR(status);
  if (::rename(next.c_str(), path.c_str()) != 0) return file_error(path, "written");
  return absl::OkStatus();
}

}  // namespace

StatusOr<BatchStore> BatchStore::open(const std::string& out_path, const std::string& manifest) {
  BatchStore store;
  store.out_path_ = out_path;
  MR_RETURN_IF_ERROR(store.lock());
  MR_RETURN_IF_ERROR(store.check_manifest(manifest));
  // OUT appears whole and before the partial file goes.
  store.complete_ = store.resumed_ && exists(out_path) && !exists(out_path + ".partial");
  if (store.complete_) {
    ::unlink((out_path + ".lock").c_str());
  } else {
    MR_RETURN_IF_ERROR(store.read_partial());
  }
  return store;
}

BatchStore::BatchStore(BatchStore&& other) noexcept
    : out_path_(std::move(other.out_path_)),
      lock_fd_(std::exchange(other.lock_fd_, -1)),
      partial_fd_(std::exchange(other.partial_fd_, -1)),
      resumed_(other.resumed_),
      complete_(other.complete_),
      size_(other.size_),
      offsets_(std::move(other.offsets_)) {}

BatchStore::~BatchStore() {
  if (partial_fd_ >= 0) ::close(partial_fd_);
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

Status BatchStore::lock() {
  const std::string path = out_path_ + ".lock";
  lock_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd_ < 0) return file_error(path, "made");
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError("another process writes " + out_path_);
}

Status BatchStore::check_manifest(const std::string& manifest) {
  const std::string path = out_path_ + ".manifest";
  resumed_ = exists(path);
  if (resumed_) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream found;
    found << file.rdbuf();
    if (found.str() == manifest) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "an earlier run towards " + out_path_ +
        " had another input, model or settings; repeat it as it was, choose another output, or "
        "remove " +
        path + " and what it belongs to");
  }
  if (exists(out_path_))
    return absl::FailedPreconditionError(out_path_ +
                                         " exists already; remove it or choose another");
  // Without a manifest nothing says what a partial file holds: a run that had just ended left it.
  const std::string partial = out_path_ + ".partial";
  if (exists(partial) && ::unlink(partial.c_str()) != 0) return file_error(partial, "removed");
  return write_atomically(
      path, [&](int fd, const std::string& name) { return write_all(fd, name, manifest); });
}

// Finds the answers that earlier runs left, and cuts what a crash left torn at the end.
Status BatchStore::read_partial() {
  const std::string path = out_path_ + ".partial";
  partial_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (partial_fd_ < 0) return file_error(path, "opened");
  std::ifstream file(path, std::ios::binary);
  for (std::string record; std::getline(file, record);) {
    if (file.eof()) break;  // no line end: torn
    int64_t line = 0;
    const char* end = record.data() + record.size();
    const auto [next, status] = std::from_chars(record.data(), end, line);
    if (status != std::errc{} || next == end || *next != ' ')
      return absl::DataLossError(path + " is damaged at byte " + std::to_string(size_) +
                                 "; remove it to begin again");
    const auto prefix = static_cast<uint64_t>(next + 1 - record.data());
    offsets_[line] = {size_ + prefix, static_cast<uint32_t>(record.size() - prefix)};
    size_ += record.size() + 1;
  }
  if (::ftruncate(partial_fd_, static_cast<off_t>(size_)) != 0 ||
      ::lseek(partial_fd_, static_cast<off_t>(size_), SEEK_SET) < 0)
    return file_error(path, "cut");
  return absl::OkStatus();
}

Status BatchStore::append(int64_t line, std::string_view answer) {
  std::string record = std::to_string(line);
  record += ' ';
  const size_t prefix = record.size();
  record += answer;
  record += '\n';
  MR_RETURN_IF_ERROR(write_all(partial_fd_, out_path_ + ".partial", record));
  offsets_[line] = {size_ + prefix, static_cast<uint32_t>(answer.size())};
  size_ += record.size();
  return absl::OkStatus();
}

Status BatchStore::sync() {
  if (::fdatasync(partial_fd_) == 0) return absl::OkStatus();
  return file_error(out_path_ + ".partial", "written");
}

Status BatchStore::finish() {
  MR_RETURN_IF_ERROR(sync());
  MR_RETURN_IF_ERROR(write_atomically(out_path_, [&](int fd, const std::string& name) {
    std::string chunk;
    for (const auto& [line, span] : offsets_) {
      const size_t old = chunk.size();
      chunk.resize(old + span.bytes);
      const ssize_t count =
          ::pread(partial_fd_, chunk.data() + old, span.bytes, static_cast<off_t>(span.offset));
      if (count != static_cast<ssize_t>(span.bytes))
        return file_error(out_path_ + ".partial", "read");
      chunk += '\n';
      if (chunk.size() < kCopyBytes) continue;
      MR_RETURN_IF_ERROR(write_all(fd, name, chunk));
      chunk.clear();
    }
    return write_all(fd, name, chunk);
  }));
  for (const char* suffix : {".partial", ".lock"}) ::unlink((out_path_ + suffix).c_str());
  return absl::OkStatus();
}

}  // namespace millrace::app
