#include "engine/load/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

class FileHandle {
 public:
  explicit FileHandle(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), error_(fd_ < 0 ? errno : 0) {}
  ~FileHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  int fd() const { return fd_; }
  int error() const { return error_; }

 private:
  int fd_;
  int error_;
};

Status file_error(const std::string& path, int error) {
  const std::string text = path + " cannot be read: " + std::strerror(error) + ".";
  return error == ENOENT ? absl::NotFoundError(text) : absl::InvalidArgumentError(text);
}

// Size of a regular file, or the reason why there is none.
StatusOr<uint64_t> regular_file_size(const FileHandle& file, const std::string& path) {
  if (file.fd() < 0) return file_error(path, file.error());
  struct stat info;
  if (::fstat(file.fd(), &info) != 0) return file_error(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(path + " is not a regular file.");
  }
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

StatusOr<MappedFile> MappedFile::open(const std::string& path) {
  const FileHandle handle(path);
  MR_ASSIGN_OR_RETURN(const uint64_t size, regular_file_size(handle, path));
  MappedFile file;
  file.path_ = path;
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, handle.fd(), 0);
  if (data == MAP_FAILED) return file_error(path, errno);
  file.data_ = static_cast<const uint8_t*>(data);
  file.size_ = size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::expect_sequential_read() const {
  if (data_ == nullptr) return;
  ::madvise(const_cast<uint8_t*>(data_), size_, MADV_SEQUENTIAL);
  ::madvise(const_cast<uint8_t*>(data_), size_, MADV_WILLNEED);
}

void MappedFile::release_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<uint8_t*>(data_), size_, MADV_DONTNEED);
}

StatusOr<std::string> read_text_file(const std::string& path, uint64_t max_bytes) {
  const FileHandle handle(path);
  MR_ASSIGN_OR_RETURN(const uint64_t size, regular_file_size(handle, path));
  if (size > max_bytes) {
    return absl::InvalidArgumentError(path + " has " + std::to_string(size) + " bytes; at most " +
                                      std::to_string(max_bytes) + " are accepted.");
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(handle.fd(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace millrace
