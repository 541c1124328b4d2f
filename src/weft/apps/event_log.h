// RUN/events.jsonl: what happened to a supervised run, a line for each event (docs/operations.md).
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

// Until there is such a folder, lines wait. What cannot be written is left out: the run goes on.
class EventLog {
 public:
  explicit EventLog(std::filesystem::path run) : run_(std::move(run)) {}
  void add(const std::string& event, nlohmann::json more);

 private:
  void write();
  const std::filesystem::path run_;
  std::string waiting_;
};

}  // namespace weft
