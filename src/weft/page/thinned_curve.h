// A curve of any number of points in bounded memory: where there are more than it has buckets, neighbours are put
// together, and the least and the greatest value of each bucket stay.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

struct CurvePoint {
  int64_t step = 0;
  double value = 0;  // NaN: recorded, and not finite
};

// Points of a window, by step.
struct CurveWindow {
  std::vector<CurvePoint> points = {};
  bool thinned = false;  // there were more records than points
};

class ThinnedCurve {
 public:
  // At most so many buckets of kBucketBytes; an even number of at least 2.
  explicit ThinnedCurve(size_t most_buckets) : most_buckets_(most_buckets) {}

  // `step` is greater than that of the point before.
  void add(int64_t step, double value);

  // At most `most` (at least 4) points with from <= step <= to. Each was added; of what is left out, none is above or
  // below all points of its stretch that are there. Where points were put together, the first and the last bucket may
  // reach beyond the window: an extreme of theirs counts if it lies in it.
  CurveWindow window(int64_t from, int64_t to, size_t most) const;
  // Buckets in a window: half as many points, or more, can be had of it.
  size_t buckets_in(int64_t from, int64_t to) const;

  int64_t num_points() const { return num_points_; }
  int64_t points_a_bucket() const { return width_; }  // 1: every point is kept
  const CurvePoint& last() const { return last_; }    // of at least one
  int64_t first_step() const { return buckets_.empty() ? 0 : buckets_.front().first; }
  size_t bytes() const { return buckets_.capacity() * sizeof(Bucket); }

 private:
  struct Bucket {
    int64_t first = 0;  // step
    int64_t low_step = 0, high_step = 0;
    double low = std::numeric_limits<double>::quiet_NaN(), high = std::numeric_limits<double>::quiet_NaN();
    void take(int64_t step, double value);
    void take(const Bucket& later);
    bool is_empty() const { return low != low; }  // of finite values
  };
  size_t bucket_of(int64_t step) const;  // the last that begins at or before it; 0 where none does
  void put_together();

  size_t most_buckets_;
  std::vector<Bucket> buckets_;
  int64_t width_ = 1, in_last_ = 0;  // points of a full bucket; of the last one
  int64_t num_points_ = 0;
  CurvePoint last_;

 public:
  static constexpr size_t kBucketBytes = sizeof(Bucket);
};

}  // namespace weft
