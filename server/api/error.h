// Error: what a client is told, in OpenAI's shape. Result<T>: a value or an Error. Values; any
// thread may make and read them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/base/status.h"

namespace millrace::api {

struct Error {
  int http_status = 400;
  std::string type = "invalid_request_error";
  std::string code;   // empty: null in the JSON
  std::string param;  // the request field at fault; empty: null in the JSON
  std::string message;
};

// 400 naming the field at fault.
Error invalid_field(std::string param, std::string message);
// 400 for a known field or value that this version does not carry out.
Error unsupported_field(std::string param, std::string message);
// What a failed Status means over HTTP: INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION and
// UNIMPLEMENTED 400, UNAUTHENTICATED 401, PERMISSION_DENIED 403, NOT_FOUND 404,
// RESOURCE_EXHAUSTED 429, CANCELLED 499, UNAVAILABLE 503, DEADLINE_EXCEEDED 504, anything else 500.
Error error_from_status(const Status& status);

// {"error":{"message","type","param","code"}}
std::string error_json(const Error& error);

template <class T>
class Result {
 public:
  Result(T value) : value_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : value_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  bool ok() const { return value_.index() == 0; }
  const Error& error() const { return std::get<1>(value_); }
  T& operator*() & { return std::get<0>(value_); }
  const T& operator*() const& { return std::get<0>(value_); }
  T&& operator*() && { return std::get<0>(std::move(value_)); }
  T* operator->() { return &std::get<0>(value_); }
  const T* operator->() const { return &std::get<0>(value_); }

 private:
  std::variant<T, Error> value_;
};

}  // namespace millrace::api
