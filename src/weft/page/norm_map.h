// Numbers of tensors (grad_norms.jsonl, weight_norms.jsonl) as a map of tensors and steps: read from the file when it
// is asked for, as far as it has grown. Not thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/page/followed_file.h"
#include "weft/page/thinned_curve.h"

namespace weft {

inline constexpr size_t kMostMapColumns = 400, kMostMapNames = 2000;

// What a run may record of its tensors: the key in a line of the file, the file, and the option that it needs.
struct MapKind {
  std::string_view key, file, option;
};
inline constexpr std::array<MapKind, 3> kMapKinds{
    {{"grad_norm", "grad_norms.jsonl", "train.log_grad_norms = true"},
     {"weight_norm", "weight_norms.jsonl", "train.log_weight_norms = N (steps)"},
     {"update_ratio", "weight_norms.jsonl", "train.log_weight_norms = N (steps)"}}};

class NormMap {
 public:
  NormMap(const std::filesystem::path& run, const MapKind& kind);

  // Reads at most about `most_bytes` of what is new.
  void poll(int64_t most_bytes);
  bool has_more() const { return file_.has_more(); }
  bool is_there() const { return !norms_.empty(); }
  int64_t generation() const { return generation_; }  // as MetricsFollower's
  const std::string& problem() const { return file_.problem(); }
  const MapKind& kind() const { return kind_; }

  struct Columns {
    std::vector<std::string> names;
    std::vector<int64_t> steps, ends;         // the first and the last step of each column
    std::vector<std::vector<double>> values;  // [name][column], the greatest; NaN: none, or one is not finite
  };
  // Of a window of steps, in at most `most` columns of equally many records.
  Columns columns(int64_t from, int64_t to, size_t most) const;

 private:
  struct Stretch {
    int64_t first = 0, last = 0;  // steps with a record
    int64_t records = 0;
  };
  void take(std::string_view line);
  // The number of the stretch that a record of this step belongs to; -1: it is before all of them.
  int64_t stretch_of(int64_t step);
  void halve();

  const MapKind kind_;
  FollowedFile file_;
  int64_t generation_ = 1;
  // A stretch is as many records, in the order of steps, as keep the number of stretches within bounds.
  int64_t stretch_records_ = 1;
  std::vector<Stretch> stretches_;
  std::map<std::string, std::vector<double>, std::less<>> norms_;  // [stretch]; below 0: none; NaN: one is not finite
};

}  // namespace weft
