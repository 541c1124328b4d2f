// grad_norms.jsonl as a map of tensors and steps: read from the file when it is asked for, as far as it has grown.
// Not thread-safe.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "weft/page/followed_file.h"
#include "weft/page/thinned_curve.h"

namespace weft {

inline constexpr size_t kMostMapColumns = 400, kMostMapNames = 2000;

class GradientMap {
 public:
  explicit GradientMap(const std::filesystem::path& run);

  // Reads at most about `most_bytes` of what is new.
  void poll(int64_t most_bytes);
  bool has_more() const { return file_.has_more(); }
  bool is_there() const { return !norms_.empty(); }
  int64_t generation() const { return generation_; }  // as MetricsFollower's
  const std::string& problem() const { return file_.problem(); }

  struct Columns {
    std::vector<std::string> names;
    std::vector<int64_t> steps;               // the first of each column
    int64_t end = 0;                          // the last step of all
    std::vector<std::vector<double>> values;  // [name][column], the greatest; NaN: none, or one is not finite
  };
  // Of a window of steps, in at most `most` columns of equally many steps.
  Columns columns(int64_t from, int64_t to, size_t most) const;

 private:
  void take(std::string_view line);

  FollowedFile file_;
  int64_t generation_ = 1;
  int64_t first_ = 0, last_ = 0;  // steps
  // The greatest norm of each stretch of steps. A stretch is as many steps as keep their number within bounds.
  int64_t stretch_steps_ = 1;
  std::map<std::string, std::vector<double>, std::less<>> norms_;  // [stretch]; below 0: none; NaN: one is not finite
};

}  // namespace weft
