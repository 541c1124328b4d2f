#include "weft/ops/traced.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "weft/ops/grouped_products.h"

namespace weft {
namespace {

nlohmann::json slice(std::string_view name, std::string_view kind, int64_t start_ns, int64_t end_ns) {
  return {{"name", std::string(name)},
          {"cat", std::string(kind)},
          {"ph", "X"},
          {"pid", 0},
          {"tid", 0},
          {"ts", double(start_ns) / 1e3},
          {"dur", double(end_ns - start_ns) / 1e3}};
}

// "a/b/c" -> "a", "a/b", "a/b/c".
std::vector<std::string_view> enclosing(std::string_view path) {
  std::vector<std::string_view> all;
  for (size_t at = 0; at != std::string_view::npos && !path.empty();) {
    at = path.find('/', at + 1);
    all.push_back(path.substr(0, at));
  }
  return all;
}

// Consecutive events in one region are one slice of it.
class RegionSlices {
 public:
  explicit RegionSlices(nlohmann::json& to) : to_(to) {}
  void add(std::string_view path, int64_t start_ns, int64_t end_ns) {
    const auto inside = enclosing(path);
    size_t common = 0;
    while (common < std::min(open_.size(), inside.size()) && open_[common].path == inside[common]) ++common;
    close(common);
    for (size_t i = common; i < inside.size(); ++i) open_.push_back({inside[i], start_ns});
    last_end_ns_ = end_ns;
  }
  void close(size_t down_to = 0) {
    for (; open_.size() > down_to; open_.pop_back()) {
      const std::string_view path = open_.back().path;
      to_.push_back(slice(path.substr(path.rfind('/') + 1), "region", open_.back().start_ns, last_end_ns_));
    }
  }

 private:
  struct Open {
    std::string_view path;
    int64_t start_ns;
  };
  nlohmann::json& to_;
  std::vector<Open> open_;
  int64_t last_end_ns_ = 0;
};

}  // namespace

Traced::Traced(Backend& inner, Clock clock, int64_t capacity) : BackendAround(inner), clock_(std::move(clock)) {
  WEFT_CHECK(capacity > 0, "a trace of {} events", capacity);
  ring_.resize(size_t(capacity));
}

void Traced::run(const AnyOp& op) {
  TraceEvent event = {.region = region_, .op = op.name(), .cost = op.cost()};
  if (const auto* product = op.as<Matmul>()) event.product = shape_of(*product);
  IssuedOps* const issued = inner_.issued();
  if (issued == nullptr) {
    event.start_ns = wait_for_clock();
    inner_.run(op);
    event.end_ns = wait_for_clock();
    record(event);
  } else {
    const Stamp start = issued->stamp();
    inner_.run(op);
    record_late(event, start, issued->stamp());
  }
  keep_products(op);
}

void Traced::keep_products(const AnyOp& op) {
  if (const auto* product = op.as<Matmul>()) products_.push_back(*product);
  const auto add = [&](const auto* grouped, int64_t rows) {
    std::vector<int32_t> equal;
    const int32_t* offsets = grouped->offsets.template as<int32_t>();
    if (inner_.issued() != nullptr) {
      for (int64_t g = 0; g <= grouped->groups(); ++g) equal.push_back(int32_t(rows * g / grouped->groups()));
      offsets = equal.data();
    }
    for (const Matmul& product : products_of(*grouped, offsets)) products_.push_back(product);
  };
  if (const auto* grouped = op.as<GroupedMatmul>()) add(grouped, grouped->x.rows());
  if (const auto* grouped = op.as<GroupedWeightGrad>()) add(grouped, grouped->x.rows());
}

void Traced::enter(std::string_view region) {
  BackendAround::enter(region);
  name_region();
}

void Traced::leave() {
  BackendAround::leave();
  name_region();
}

void Traced::wait_all() {
  inner_.wait_all();
  for (const Late& l : late_) {
    ring_[l.place].start_ns = inner_.issued()->take_time_ns(l.start);
    ring_[l.place].end_ns = inner_.issued()->take_time_ns(l.end);
  }
  late_.clear();
}

int64_t Traced::wait_for_clock() {
  wait_all();
  return clock_();
}

// No event gives way to another before its times are known.
void Traced::record_late(const TraceEvent& event, Stamp start, Stamp end) {
  if (late_.size() == ring_.size()) wait_all();
  late_.push_back({size_t(num_recorded_) % ring_.size(), start, end});
  record(event);
}

void Traced::name_region() {
  auto at = names_.find(path_.text());
  if (at == names_.end()) at = names_.insert(path_.text()).first;
  region_ = *at;
}

std::vector<TraceEvent> Traced::events() const {
  WEFT_CHECK(late_.empty(), "{} events were not waited for", late_.size());
  std::vector<TraceEvent> all;
  for (int64_t i = num_dropped(); i < num_recorded_; ++i) all.push_back(ring_[size_t(i) % ring_.size()]);
  return all;
}

void Traced::wait_clear() {
  IssuedOps* const issued = inner_.issued();
  const Stamp now = issued != nullptr ? issued->stamp() : Stamp::none;
  wait_all();
  if (issued != nullptr) issued->take_time_ns(now);
  num_recorded_ = 0;
  products_.clear();
}

std::string to_chrome_trace(const std::vector<TraceEvent>& events, const std::vector<TraceSpan>& beside,
                            const std::string& other_data) {
  nlohmann::json list = nlohmann::json::array();
  RegionSlices regions(list);
  const int64_t origin = events.empty() ? 0 : events.front().start_ns;
  for (const TraceEvent& e : events) {
    regions.add(e.region, e.start_ns - origin, e.end_ns - origin);
    list.push_back(slice(e.op, "op", e.start_ns - origin, e.end_ns - origin));
    list.back()["args"] = {{"region", std::string(e.region)},
                           {"flops", e.cost.flops},
                           {"bytes", e.cost.bytes_read + e.cost.bytes_written}};
    if (e.op == Matmul::kName) list.back()["args"]["shape"] = to_string(e.product);
  }
  regions.close();
  int64_t id = 0;
  for (const TraceSpan& span : beside) {
    nlohmann::json edge{{"name", span.name}, {"cat", span.track}, {"pid", 0}, {"id", id++}};
    edge["args"] = {{"bytes", span.bytes}};
    for (const auto& [phase, at_ns] : {std::pair("b", span.start_ns), std::pair("e", span.end_ns)}) {
      edge["ph"] = phase;
      edge["ts"] = double(at_ns - origin) / 1e3;
      list.push_back(edge);
    }
  }
  nlohmann::json trace{{"traceEvents", std::move(list)}};
  if (!other_data.empty()) trace["otherData"] = nlohmann::json::parse(other_data);
  return trace.dump();
}

void write_chrome_trace(const std::filesystem::path& file, const std::vector<TraceEvent>& events,
                        const std::vector<TraceSpan>& beside, const std::string& other_data) {
  std::ofstream out(file, std::ios::binary);
  out << to_chrome_trace(events, beside, other_data) << '\n';
  if (!out.flush()) throw FileError(fmt::format("{}: the trace cannot be written", file.string()));
}

}  // namespace weft
