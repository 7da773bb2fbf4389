#include "engine/text/stop_matcher.h"

#include <utility>

namespace millrace {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop), nodes_(1) {
  for (size_t i = 0; i < stops_.size(); ++i) {
    if (!stops_[i].empty()) insert(static_cast<int>(i));
  }
  link();
}

int StopMatcher::child(int node, char byte) const {
  int next = nodes_[node].first_child;
  while (next >= 0 && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
  return next;
}

int StopMatcher::step(int node, char byte) const {
  for (;;) {
    const int next = child(node, byte);
    if (next >= 0) return next;
    if (node == 0) return 0;
    node = nodes_[node].fail;
  }
}

void StopMatcher::insert(int stop) {
  int node = 0;
  for (const char byte : stops_[stop]) {
    int next = child(node, byte);
    if (next < 0) {
      next = static_cast<int>(nodes_.size());
      nodes_.push_back({.byte = byte,
                        .next_sibling = nodes_[node].first_child,
                        .depth = nodes_[node].depth + 1});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  if (nodes_[node].matched < 0) nodes_[node].matched = stop;
}

// Breadth first, so that every fail link points to a node that is already linked.
void StopMatcher::link() {
  std::vector<int> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int node = order[i];
    for (int next = nodes_[node].first_child; next >= 0; next = nodes_[next].next_sibling) {
      nodes_[next].fail = node == 0 ? 0 : step(nodes_[node].fail, nodes_[next].byte);
      if (nodes_[next].matched < 0) nodes_[next].matched = nodes_[nodes_[next].fail].matched;
      order.push_back(next);
    }
  }
}

StopMatcher::Result StopMatcher::push(std::string_view piece) {
  Result result;
  result.text = std::move(held_);
  held_.clear();
  for (size_t i = 0; i < piece.size(); ++i) {
    state_ = step(state_, piece[i]);
    if (nodes_[state_].matched < 0) continue;
    result.matched = nodes_[state_].matched;
    result.text.append(piece.substr(0, i + 1));
    if (!include_stop_) {
      result.text.resize(result.text.size() - stops_[result.matched].size());
    }
    return result;
  }
  result.text.append(piece);
  const size_t safe = result.text.size() - static_cast<size_t>(nodes_[state_].depth);
  held_ = result.text.substr(safe);
  result.text.resize(safe);
  return result;
}

std::string StopMatcher::finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace millrace
