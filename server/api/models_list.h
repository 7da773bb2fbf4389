// Bodies of GET /v1/models and /v1/models/{id}. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/error.h"

namespace millrace::api {

struct ModelCard {
  std::string root;  // the checkpoint that all names stand for
  int64_t created = 0;
  int64_t max_model_len = 0;
};

std::string models_json(std::span<const std::string> names, const ModelCard& card);
std::string model_json(std::string_view name, const ModelCard& card);
// 404 that lists the names that exist.
Error unknown_model(std::string_view asked, std::span<const std::string> names);

}  // namespace millrace::api
