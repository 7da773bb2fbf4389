#include "server/app/routes.h"

namespace millrace::app {

namespace {

constexpr Route kRoutes[] = {
    {RouteId::chat_completions, "POST", "/v1/chat/completions", RouteAccess::key},
    {RouteId::completions, "POST", "/v1/completions", RouteAccess::key},
    {RouteId::models, "GET", "/v1/models", RouteAccess::key},
    {RouteId::model, "GET", "/v1/models/", RouteAccess::key},
    {RouteId::tokenize, "POST", "/tokenize", RouteAccess::key},
    {RouteId::detokenize, "POST", "/detokenize", RouteAccess::key},
    {RouteId::health, "GET", "/health", RouteAccess::open},
    {RouteId::livez, "GET", "/livez", RouteAccess::open},
    {RouteId::readyz, "GET", "/readyz", RouteAccess::open},
    {RouteId::ping, "GET", "/ping", RouteAccess::open},
    {RouteId::version, "GET", "/version", RouteAccess::key},
    {RouteId::metrics, "GET", "/metrics", RouteAccess::open},
    {RouteId::load, "GET", "/load", RouteAccess::key},
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::span<const Route> all_routes() { return kRoutes; }

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    const bool matches = route.takes_name()
                             ? path.size() > route.path.size() && path.starts_with(route.path)
                             : path == route.path;
    if (matches) return &route;
  }
  return nullptr;
}

bool method_matches(const Route& route, std::string_view method) {
  return method == route.method || (method == "HEAD" && route.method == "GET");
}

std::string allowed_methods(const Route& route) {
  return route.method == "GET" ? "GET, HEAD, OPTIONS" : std::string(route.method) + ", OPTIONS";
}

std::string name_in_path(const Route& route, std::string_view path) {
  const std::string_view encoded = path.substr(route.path.size());
  std::string name;
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] == '%' && i + 2 < encoded.size()) {
      const int high = hex_digit(encoded[i + 1]), low = hex_digit(encoded[i + 2]);
      if (high >= 0 && low >= 0) {
        name.push_back(static_cast<char>(high * 16 + low));
        i += 2;
        continue;
      }
    }
    name.push_back(encoded[i]);
  }
  return name;
}

}  // namespace millrace::app
