#include "server/api/error.h"

#include "server/api/json_text.h"

namespace millrace::api {

Error invalid_field(std::string param, std::string message) {
  Error error;
  error.code = "invalid_value";
  error.param = std::move(param);
  error.message = std::move(message);
  return error;
}

Error unsupported_field(std::string param, std::string message) {
  Error error = invalid_field(std::move(param), std::move(message));
  error.code = "unsupported_parameter";
  return error;
}

Error error_from_status(const Status& status) {
  Error error;
  error.message = status_message(status);
  const auto set = [&](int http_status, const char* type, const char* code) {
    error.http_status = http_status;
    error.type = type;
    error.code = code;
  };
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      set(400, "invalid_request_error", "invalid_request");
      break;
    case absl::StatusCode::kUnauthenticated:
      set(401, "authentication_error", "invalid_api_key");
      break;
    case absl::StatusCode::kPermissionDenied:
      set(403, "permission_error", "permission_denied");
      break;
    case absl::StatusCode::kNotFound: set(404, "not_found_error", "not_found"); break;
    case absl::StatusCode::kUnimplemented:
      set(400, "invalid_request_error", "unsupported_parameter");
      break;
    case absl::StatusCode::kResourceExhausted: set(429, "rate_limit_error", "queue_full"); break;
    case absl::StatusCode::kUnavailable: set(503, "service_unavailable", "unavailable"); break;
    case absl::StatusCode::kDeadlineExceeded: set(504, "timeout_error", "deadline_exceeded"); break;
    case absl::StatusCode::kCancelled: set(499, "request_cancelled", "cancelled"); break;
    default: set(500, "server_error", "internal_error");
  }
  return error;
}

std::string error_json(const Error& error) {
  const auto append_or_null = [](std::string& out, const std::string& value) {
    value.empty() ? void(out += "null") : append_json_string(out, value);
  };
  std::string out = "{\"error\":{\"message\":";
  append_json_string(out, error.message);
  out += ",\"type\":";
  append_json_string(out, error.type);
  out += ",\"param\":";
  append_or_null(out, error.param);
  out += ",\"code\":";
  append_or_null(out, error.code);
  out += "}}";
  return out;
}

}  // namespace millrace::api
