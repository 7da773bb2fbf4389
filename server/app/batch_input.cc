#include "server/app/batch_input.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "server/api/json_shape.h"
#include "server/api/json_text.h"
#include "server/api/json_value.h"

namespace millrace::app {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_utf8(std::string_view text) {
  size_t bad_length = 0;
  while (!text.empty()) {
    const size_t length = api::utf8_character(text, bad_length);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::optional<api::Route> route_of(std::string_view url) {
  if (url == "/v1/chat/completions") return api::Route::chat;
  if (url == "/v1/completions") return api::Route::completions;
  return std::nullopt;
}

using Json = nlohmann::ordered_json;

// The custom_id of a row, or why it has none.
std::optional<RowError> read_custom_id(const Json& row, std::string& custom_id) {
  const Json* id = api::find_member(row, "custom_id");
  if (!id) return RowError{"", "missing_custom_id", "custom_id is missing"};
  if (!id->is_string() || id->get_ref<const std::string&>().empty())
    return RowError{"", "invalid_custom_id", "custom_id must be a string that is not empty"};
  custom_id = id->get<std::string>();
  return std::nullopt;
}

std::optional<RowError> read_target(const Json& row, BatchRow& out) {
  const Json* method = api::find_member(row, "method");
  if (!method || *method != "POST")
    return RowError{out.custom_id, "invalid_method", "method must be \"POST\""};
  const Json* url = api::find_member(row, "url");
  const auto route =
      url && url->is_string() ? route_of(url->get_ref<const std::string&>()) : std::nullopt;
  if (!route)
    return RowError{out.custom_id, "invalid_url",
                    "url must be /v1/chat/completions or /v1/completions"};
  out.route = *route;
  const Json* body = api::find_member(row, "body");
  if (!body || !body->is_object())
    return RowError{out.custom_id, "invalid_body", "body must be an object"};
  const Json* stream = api::find_member(*body, "stream");
  if (stream && *stream == true)
    return RowError{out.custom_id, "invalid_body", "body.stream must not be true in a batch"};
  out.body = api::dump(*body);
  return std::nullopt;
}

struct DigestFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

std::string hex(const unsigned char* bytes, unsigned count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < count; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

}  // namespace

StatusOr<std::string> sha256_of_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(path + " cannot be read: " + std::strerror(errno));
  const std::unique_ptr<EVP_MD_CTX, DigestFree> digest(EVP_MD_CTX_new());
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  std::string chunk(kReadBytes, '\0');
  ssize_t count = 0;
  while ((count = ::read(fd, chunk.data(), chunk.size())) > 0)
    EVP_DigestUpdate(digest.get(), chunk.data(), static_cast<size_t>(count));
  ::close(fd);
  if (count < 0) return absl::DataLossError(path + " cannot be read: " + std::strerror(errno));
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(digest.get(), bytes, &size);
  return hex(bytes, size);
}

StatusOr<LineReader> LineReader::open(const std::string& path, size_t max_line_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(path + " cannot be read: " + std::strerror(errno));
  return LineReader(fd, max_line_bytes);
}

LineReader::LineReader(LineReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      errno_(other.errno_),
      max_line_bytes_(other.max_line_bytes_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      number_(other.number_) {}

LineReader::~LineReader() {
  if (fd_ >= 0) ::close(fd_);
}

// Appends more of the file to the buffer; false at its end.
bool LineReader::fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t old = buffer_.size();
  buffer_.resize(old + kReadBytes);
  ssize_t count = 0;
  do {
    count = ::read(fd_, buffer_.data() + old, kReadBytes);
  } while (count < 0 && errno == EINTR);
  if (count < 0) errno_ = errno;
  buffer_.resize(old + static_cast<size_t>(std::max<ssize_t>(0, count)));
  return count > 0;
}

Status LineReader::status() const {
  if (errno_ == 0) return absl::OkStatus();
  return absl::DataLossError(std::string("the input cannot be read: ") + std::strerror(errno_));
}

bool LineReader::read_raw(Line& line) {
  line = {};
  size_t searched = 0;
  while (true) {
    const size_t end = buffer_.find('\n', begin_ + searched);
    const bool found = end != std::string::npos;
    const size_t size = (found ? end : buffer_.size()) - begin_;
    if (size > max_line_bytes_) line.too_long = true;
    if (found) {
      if (!line.too_long) line.text = buffer_.substr(begin_, size);
      begin_ = end + 1;
      break;
    }
    if (line.too_long) begin_ = buffer_.size();  // drop what cannot be used
    searched = buffer_.size() - begin_;
    if (fill()) continue;
    if (size == 0 && !line.too_long) return false;
    if (!line.too_long) line.text = buffer_.substr(begin_);
    begin_ = buffer_.size();
    break;
  }
  line.number = ++number_;
  return true;
}

std::optional<LineReader::Line> LineReader::next() {
  Line line;
  while (read_raw(line)) {
    if (line.number == 1 && line.text.starts_with(kByteOrderMark))
      line.text.erase(0, kByteOrderMark.size());
    while (!line.text.empty() && (line.text.back() == '\r' || line.text.back() == ' '))
      line.text.pop_back();
    if (line.too_long || line.text.find_first_not_of(" \t") != std::string::npos) return line;
  }
  return std::nullopt;
}

std::variant<BatchRow, RowError> parse_row(const LineReader::Line& line) {
  if (line.too_long) return RowError{"", "line_too_long", "the line is too long"};
  if (!is_utf8(line.text)) return RowError{"", "invalid_utf8", "the line is not valid UTF-8"};
  const api::Limits limits;
  const api::ShapeLimit body[] = {{.field = "body", .max_values = limits.max_prompt_values}};
  api::Limits deeper = limits;
  deeper.max_json_depth += 1;
  // The fields of the body, one level down here, are judged again by their own limits.
  deeper.max_json_members = std::max(limits.max_json_members, limits.max_logit_bias);
  if (auto error = api::check_json_shape(line.text, deeper, body))
    return RowError{"", "invalid_json", error->message};
  auto parsed = api::parse_json(line.text);
  if (!parsed.ok()) return RowError{"", "invalid_json", parsed.error().message};
  if (!parsed->is_object()) return RowError{"", "invalid_json", "the line is no JSON object"};
  BatchRow row;
  if (auto error = read_custom_id(*parsed, row.custom_id)) return *std::move(error);
  if (auto error = read_target(*parsed, row)) return *std::move(error);
  return row;
}

StatusOr<BatchSurvey> survey_batch(const std::string& path, size_t max_line_bytes) {
  BatchSurvey survey;
  MR_ASSIGN_OR_RETURN(survey.sha256, sha256_of_file(path));
  MR_ASSIGN_OR_RETURN(LineReader reader, LineReader::open(path, max_line_bytes));
  // Ids are kept as two hashes of 64 bits each, so memory does not depend on their length.
  std::unordered_map<size_t, std::pair<size_t, int64_t>> seen;
  while (const auto line = reader.next()) {
    ++survey.rows;
    const auto row = parse_row(*line);
    const std::string& id =
        row.index() == 0 ? std::get<0>(row).custom_id : std::get<1>(row).custom_id;
    if (id.empty()) continue;
    const std::hash<std::string> hash;
    const size_t second = hash(id + '#');
    const auto [found, added] = seen.try_emplace(hash(id), second, line->number);
    if (added || found->second.first != second) continue;
    return absl::InvalidArgumentError(path + ": lines " + std::to_string(found->second.second) +
                                      " and " + std::to_string(line->number) +
                                      " have the same custom_id \"" + id.substr(0, 80) + "\"");
  }
  MR_RETURN_IF_ERROR(reader.status());
  return survey;
}

}  // namespace millrace::app
