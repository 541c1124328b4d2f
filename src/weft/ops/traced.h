// A backend around a backend that records what ran when.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "weft/ops/backend_around.h"
#include "weft/ops/cost.h"

namespace weft {

struct TraceEvent {
  std::string_view region;  // the path of regions, "" outside of all; valid as long as the Traced that recorded it
  std::string_view op;
  int64_t start_ns = 0, end_ns = 0;
  OpCost cost;
  ProductShape product = {};  // of a matrix product
};

// Times each op of another backend: by the clock, or, where the backend runs ops later, by the device's stamps before
// and after each op, which nothing waits for (launch time counts as the op's where the device waits for the host). For
// diagnosis, not for training. Keeps the last `capacity` events in memory that is taken at construction. The inner
// backend is borrowed.
class Traced final : public BackendAround {
 public:
  using Clock = std::function<int64_t()>;  // nanoseconds; to compare with a device's, of std::chrono::steady_clock
  Traced(Backend& inner, Clock clock, int64_t capacity = int64_t{1} << 16);

  void run(const AnyOp& op) override;
  void enter(std::string_view region) override;
  void leave() override;
  void wait_all() override;

  std::vector<TraceEvent> events() const;  // oldest first; after wait_all of this, not of the inner backend
  int64_t num_recorded() const { return num_recorded_; }
  int64_t num_dropped() const { return std::max<int64_t>(0, num_recorded_ - int64_t(ring_.size())); }
  // Every matrix product that ran; of grouped ones, those of each group (where a device has the counts: of equal
  // groups).
  const std::vector<Matmul>& products() const { return products_; }
  // Drops all events. A device synchronizes its clock with the host's now if it has to, not within later events.
  void wait_clear();

 private:
  struct Late {  // an event whose times the device does not tell yet
    size_t place;
    Stamp start, end;
  };
  int64_t wait_for_clock();
  void record(const TraceEvent& event) { ring_[size_t(num_recorded_++) % ring_.size()] = event; }
  void keep_products(const AnyOp& op);
  void record_late(const TraceEvent& event, Stamp start, Stamp end);
  void name_region();

  Clock clock_;
  std::set<std::string, std::less<>> names_;  // of all regions so far
  std::string_view region_;                   // the present one, in names_
  std::vector<TraceEvent> ring_;
  int64_t num_recorded_ = 0;
  std::vector<Late> late_;  // the last of what was recorded
  std::vector<Matmul> products_;
};

// A span on a track of its own beside the ops; spans of a track may overlap.
struct TraceSpan {
  std::string track, name;
  int64_t start_ns = 0, end_ns = 0, bytes = 0;
};
// The events as a Chrome trace (JSON), which Perfetto and chrome://tracing show: each op a slice with its flops and
// bytes, within slices of the regions it ran in; each span a slice below. Times begin at the first event. `other_data`:
// a JSON object that goes along as "otherData"; empty: none.
std::string to_chrome_trace(const std::vector<TraceEvent>& events, const std::vector<TraceSpan>& beside = {},
                            const std::string& other_data = "");
// The same into a file. Throws FileError where it cannot be written.
void write_chrome_trace(const std::filesystem::path& file, const std::vector<TraceEvent>& events,
                        const std::vector<TraceSpan>& beside = {}, const std::string& other_data = "");

}  // namespace weft
