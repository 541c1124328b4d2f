// The newest trace of a run's step (trace.json), read when it is asked for, and told in parts. Not thread-safe.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

class TraceView {
 public:
  explicit TraceView(std::filesystem::path run);

  struct Window {
    std::optional<double> from_us = {}, to_us = {};  // none: the whole step
    std::optional<int64_t> rank = {};                // none: all; of many, only their actions
  };
  // What /api/trace says beside the run (docs/formats/page.md). Reads the file where it is another one.
  nlohmann::ordered_json json(const Window& window);

 private:
  struct Slice {
    double began_us, lasted_us;
    double ended_us() const { return began_us + lasted_us; }
    int32_t name, kind;
    int64_t micro_batch;
  };
  using Names = std::map<std::string, int32_t, std::less<>>;
  void read();
  void take(std::string_view line);
  static int32_t number_of(Names& names, const std::string& name);

  const std::filesystem::path file_;
  std::string stamp_, problem_;
  int64_t step_ = 0, bad_lines_ = 0;
  double ended_us_ = 0;
  Names names_, kinds_;
  std::map<std::pair<int64_t, int64_t>, std::vector<Slice>> rows_;  // by rank and track, in the order of time
  std::vector<int64_t> ranks_;
};

}  // namespace weft
