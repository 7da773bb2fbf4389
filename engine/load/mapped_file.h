// MappedFile: a whole file as read-only bytes. Opening maps it without reading; the pages come in
// when touched and can be given back at any time without changing what the bytes say. Owned by the
// checkpoint; the bytes may be read by any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace millrace {

class MappedFile {
 public:
  static StatusOr<MappedFile> open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

  // The whole file is about to be read once, front to back.
  void expect_sequential_read() const;
  // Takes the pages out of this process's resident set; later reads map them again.
  void release_pages() const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The text of a small file (JSON, templates). NOT_FOUND if there is none, INVALID_ARGUMENT above
// `max_bytes`.
StatusOr<std::string> read_text_file(const std::string& path, uint64_t max_bytes);

}  // namespace millrace
