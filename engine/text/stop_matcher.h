// StopMatcher: finds the first stop string in a stream of text pieces, and holds back exactly the
// longest suffix that is a proper prefix of some stop string. Amortised O(1) per byte.
// One owner, one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class StopMatcher {
 public:
  // Empty stop strings never match.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  struct Result {
    std::string text;  // safe to send now
    int matched = -1;  // index of the stop string that ended the text, or -1
  };
  // The earliest match by end position wins; among equals the longest. Nothing may be pushed after
  // a match.
  Result push(std::string_view piece);
  std::string finish();  // the held text
  size_t held_bytes() const { return held_.size(); }

 private:
  struct Node {  // of an Aho-Corasick automaton; children are a linked list of siblings
    char byte = 0;
    int first_child = -1, next_sibling = -1;
    int fail = 0;  // longest proper suffix that is a node
    int depth = 0;
    int matched = -1;  // longest stop string that ends here
  };
  int child(int node, char byte) const;
  int step(int node, char byte) const;
  void insert(int stop);
  void link();

  std::vector<std::string> stops_;
  bool include_stop_;
  std::vector<Node> nodes_;
  int state_ = 0;
  std::string held_;
};

}  // namespace millrace
