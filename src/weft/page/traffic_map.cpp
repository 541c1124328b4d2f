#include "weft/page/traffic_map.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/comm/sent_bytes.h"
#include "weft/page/followed_file.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTrafficFile = 16 << 20, kMostTrafficAxes = 64;
constexpr int64_t kMostTrafficBytes = int64_t(1) << 53;

// Bytes of an axis between ranks: doubles, as sums of many may be large.
struct AxisBytes {
  explicit AxisBytes(int world) : world(world), bytes(size_t(world) * size_t(world)) {}
  double& at(int64_t from, int64_t to) { return bytes[size_t(from * world + to)]; }
  int world;
  double calls = 0;
  std::vector<double> bytes;
};

class TrafficFile {
 public:
  explicit TrafficFile(const nlohmann::json& file) : fields_(file, "traffic.json") {
    world_ = int(fields_.integer("world", {.min = 2, .max = kMostTrafficRanks}));
    const nlohmann::json& axes = fields_.list("axes", "a list of axes");
    if (axes.size() > kMostTrafficAxes) fields_.fail("axes", "at most 64 of them");
    for (const nlohmann::json& axis : axes)
      axes_[JsonFields(axis, "traffic.json", "axes.").string("axis")].push_back(&axis);
  }
  Json json() const {
    const int each = (world_ + kMostTrafficCells - 1) / kMostTrafficCells;
    Json axes = Json::array();
    for (const auto& [name, parts] : axes_) {
      AxisBytes sent(world_);
      for (const nlohmann::json* part : parts) add(JsonFields(*part, "traffic.json", "axes."), sent);
      axes.push_back(json_of(name, sent, each));
    }
    return {{"available", true},
            {"step", fields_.integer("step", {})},
            {"step_time_s", fields_.number("step_time_s", {})},
            {"world", world_},
            {"ranks_per_cell", each},
            {"axes", axes}};
  }

 private:
  int64_t rank_in(const nlohmann::json& value, const JsonFields& of, const char* key) const {
    if (!value.is_number_integer() || value < 0 || value >= world_) of.fail(key, "numbers of ranks");
    return value.get<int64_t>();
  }
  std::vector<int64_t> by_rank(const JsonFields& axis, const char* key) const {
    const nlohmann::json& list = axis.list(key, "a list with a number for each rank");
    std::vector<int64_t> all;
    for (const nlohmann::json& n : list)
      if (n.is_number_integer() && n >= 0 && n < kMostTrafficBytes) all.push_back(n.get<int64_t>());
    if (all.size() != size_t(world_) || list.size() != all.size()) axis.fail(key, "a number of bytes for each rank");
    return all;
  }
  void add(const JsonFields& axis, AxisBytes& sent) const {
    for (const int64_t calls : by_rank(axis, "calls")) sent.calls += double(calls);
    const std::vector<int64_t> collectives = by_rank(axis, "collectives");
    std::vector<bool> seen(size_t(world_), false);
    for (const nlohmann::json& list : axis.list("groups", "a list of groups of ranks")) {
      if (!list.is_array()) axis.fail("groups", "a list of groups of ranks");
      std::vector<int64_t> group;
      for (const nlohmann::json& r : list) {
        group.push_back(rank_in(r, axis, "groups"));
        if (seen[size_t(group.back())]) axis.fail("groups", "each rank in one group");
        seen[size_t(group.back())] = true;
      }
      for (size_t i = 0; i < group.size() && group.size() > 1; ++i) {
        const auto parts = parts_for_others(collectives[size_t(group[i])], int(group.size()) - 1);
        for (size_t k = 0; k < parts.size(); ++k)
          sent.at(group[i], group[(i + 1 + k) % group.size()]) += double(parts[k]);
      }
    }
    for (const nlohmann::json& m : axis.list("messages", "a list of messages")) {
      const bool is_one = m.is_array() && m.size() == 3 && m[2].is_number_integer() && m[2] >= 0;
      if (!is_one || m[2] >= kMostTrafficBytes) axis.fail("messages", "lists of two ranks and a number of bytes");
      sent.at(rank_in(m[0], axis, "messages"), rank_in(m[1], axis, "messages")) += double(m[2].get<int64_t>());
    }
  }
  static Json json_of(const std::string& name, const AxisBytes& sent, int each) {
    const auto cells = size_t((sent.world + each - 1) / each);
    std::vector<std::vector<double>> matrix(cells, std::vector<double>(cells));
    double all = 0, most = 0;
    int from = 0, to = 0;
    for (int r = 0; r < sent.world; ++r)
      for (int s = 0; s < sent.world; ++s) {
        const double bytes = sent.bytes[size_t(r) * size_t(sent.world) + size_t(s)];
        all += bytes;
        matrix[size_t(r / each)][size_t(s / each)] += bytes;
        if (bytes > most) most = bytes, from = r, to = s;
      }
    return {{"axis", name}, {"calls", sent.calls}, {"bytes", all}, {"most_bytes", most}, {"from", from},
            {"to", to},     {"matrix", matrix}};
  }

  const JsonFields fields_;
  int world_ = 0;
  std::map<std::string, std::vector<const nlohmann::json*>> axes_;  // what there is of each
};

}  // namespace

Json traffic_map(const std::filesystem::path& run) {
  std::string problem;
  const std::string text = read_plain(run / "traffic.json", kMostTrafficFile, problem);
  if (!problem.empty()) throw FileError(problem);
  if (text.empty())
    return {{"available", false},
            {"reason", "what ranks send is recorded behind the first step of a run of 2 to 1,024 ranks"}};
  const nlohmann::json file = parse_json(text, "traffic.json", {.max_bytes = size_t(kMostTrafficFile), .max_depth = 8});
  return TrafficFile(file).json();
}

}  // namespace weft
