// The route table: every route of the server with its methods and who may call it. Routing is
// exact: a path is neither decoded nor normalised, so there is only one way to spell a route.
// Constant data and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace millrace::app {

enum class RouteId : uint8_t {
  chat_completions,
  completions,
  models,
  model,
  tokenize,
  detokenize,
  health,
  livez,
  readyz,
  ping,
  version,
  metrics,
  load,
};

enum class RouteAccess : uint8_t {
  open,  // answers without a key: probes and metrics only
  key,   // needs a key if the server has any
};

struct Route {
  RouteId id;
  std::string_view method;  // GET includes HEAD
  std::string_view path;    // ends in '/': what follows is a name, at least one character
  RouteAccess access;

  bool takes_name() const { return path.back() == '/'; }
};

std::span<const Route> all_routes();

// The route of that path, whatever its method; null if there is none.
const Route* find_route(std::string_view path);
bool method_matches(const Route& route, std::string_view method);
// The value of the Allow header.
std::string allowed_methods(const Route& route);
// Percent-decodes the part of `path` that names something under the route.
std::string name_in_path(const Route& route, std::string_view path);

}  // namespace millrace::app
