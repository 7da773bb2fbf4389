// BatchInput: the rows of a batch file, one JSON object a line, read forward in bounded memory.
// Line numbers (from 1) are the rows' identity; a custom_id is only a label. One owner, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "engine/base/status.h"
#include "server/api/error.h"
#include "server/api/route.h"

namespace millrace::app {

class LineReader {
 public:
  static StatusOr<LineReader> open(const std::string& path, size_t max_line_bytes);
  ~LineReader();
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;

  struct Line {
    int64_t number = 0;
    std::string text;       // without line end, byte order mark and carriage return
    bool too_long = false;  // text was dropped
  };
  // Nothing at the end of the file. Blank lines are skipped.
  std::optional<Line> next();
  // Why next() ended: OK at the end of the file, else what kept it from being read.
  Status status() const;

 private:
  LineReader(int fd, size_t max_line_bytes) : fd_(fd), max_line_bytes_(max_line_bytes) {}
  bool fill();
  bool read_raw(Line& line);

  int fd_ = -1;
  int errno_ = 0;  // of a failed read
  size_t max_line_bytes_ = 0;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t number_ = 0;
};

// A row that can be carried out.
struct BatchRow {
  std::string custom_id;
  api::Route route = api::Route::chat;
  std::string body;  // JSON text
};
struct RowError {
  std::string custom_id;  // empty if the line has none
  std::string code, message;
};
// Never throws, whatever the line holds.
std::variant<BatchRow, RowError> parse_row(const LineReader::Line& line);

// What is known of an input after one pass over it.
struct BatchSurvey {
  int64_t rows = 0;
  std::string sha256;  // of the file's bytes, hexadecimal
};
StatusOr<std::string> sha256_of_file(const std::string& path);
// INVALID_ARGUMENT if two lines have the same custom_id, with both line numbers.
StatusOr<BatchSurvey> survey_batch(const std::string& path, size_t max_line_bytes);

}  // namespace millrace::app
