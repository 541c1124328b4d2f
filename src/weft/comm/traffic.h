// The bytes that a rank's collectives move, counted by a dry mesh.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// Bytes are those that leave this rank where the n ranks of an axis form a ring, whatever an engine really does: an
// all-reduce of x bytes sends 2 (n - 1) / n x, an all-gather or reduce-scatter (n - 1) / n of the whole, a send all of
// it. Receives are counted where they were sent; on an axis of one rank nothing moves, and nothing is counted.
class Traffic {
 public:
  enum class Kind : uint8_t { all_reduce, all_gather, reduce_scatter, send };
  struct Count {
    int64_t calls = 0, bytes = 0;
    bool operator==(const Count&) const = default;
  };
  using Counts = std::map<std::pair<std::string, Kind>, Count>;  // by axis and kind; none that is zero

  // The counter to add to; valid as long as this lives.
  Count& count(const std::string& axis, Kind kind) { return counts_[{axis, kind}]; }
  // What has been counted since this was `before`.
  Traffic since(const Traffic& before) const;
  // `more`, so many times.
  void add(const Traffic& more, int64_t times);
  const Counts& counts() const { return counts_; }
  int64_t bytes() const;
  bool operator==(const Traffic&) const = default;

 private:
  Counts counts_;
};
std::string_view name_of(Traffic::Kind kind);  // "all-reduce"

}  // namespace weft
