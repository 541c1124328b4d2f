// A tree of byte strings, each with a value: what begins at a place of a text is found byte by byte.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

// A double array: a step is one look.                              Aoe 1989, "An efficient digital search algorithm"
class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  // `keys` with their values, which are not negative. An empty key is never found; of equal keys, one is.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys = {});

  // Goes from a node by a byte; false: nothing goes on so.
  bool step(uint32_t& node, char byte) const {
    const size_t next = units_[node].base ^ uint8_t(byte);
    if (next >= units_.size() || units_[next].parent != node) return false;
    node = uint32_t(next);
    return true;
  }
  // The value of the key that ends at this node; kNone if none does.
  int32_t value(uint32_t node) const { return units_[node].value; }

  // The value of a whole key; kNone: it is none.
  int32_t find(std::string_view key) const;
  // The longest key that `text` begins with: its value, and its length in `bytes`. kNone, 0: there is none.
  int32_t longest(std::string_view text, size_t& bytes) const;

 private:
  static constexpr size_t kBlock = 256;  // children of a node are in one block
  static constexpr uint32_t kFree = UINT32_MAX;
  struct Unit {
    uint32_t base = 0, parent = kFree;
    int32_t value = kNone;
  };
  class Builder;

  std::vector<Unit> units_;
};

}  // namespace weft
