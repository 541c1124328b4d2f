// Which weights an update changes too much, and which grow too fast.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Norms of a tensor: before a step's update, after it, and of its change.
struct TensorChange {
  double before = 0, after = 0, change = 0;
  double ratio() const { return change / before; }  // not finite where the tensor was 0
};

// A weight that begins as 0 (a bias, half of an adapter) has no size yet to compare with: it is judged once its ratio
// has been within the limit, and not by its growth.
class WeightRule {
 public:
  static constexpr double kMostRatio = 0.1, kMostGrowth = 2;
  static constexpr int64_t kWindow = 1000;  // steps

  struct Found {
    enum class Kind : uint8_t { update, growth } kind;
    std::string tensor;  // the worst
    double value, limit;
    double norm;                       // of it, after the step
    int64_t from_step;                 // growth: of the norm that it is compared with
    std::vector<std::string> tensors;  // all that are found with it
  };
  // At most one of each kind. Growth is over the least norm of this window of kWindow steps and the one before. A
  // tensor is found again when its ratio has been within the limit in between, or when it has grown as much once more.
  std::vector<Found> look(int64_t step, const std::map<std::string, TensorChange>& tensors);

 private:
  struct Least {
    int64_t step = 0;
    double norm = 0;
  };
  struct Seen {
    bool began_at_0 = false, is_fast = false;
    int64_t window = 0;
    Least now = {}, last = {};
  };
  bool is_fast(Seen& seen, const TensorChange& change);
  // The least norm, of which this one is more than kMostGrowth times; none: it is not.
  std::optional<Least> grown_since(Seen& seen, int64_t step, double norm);

  std::map<std::string, Seen> seen_;
};

}  // namespace weft
