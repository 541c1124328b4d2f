// Run folders that grow while a test looks at them.
#pragma once
#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "history/run_folders.h"
#include "support.h"
#include "weft/base/descriptor.h"
#include "weft/page/live_page.h"

namespace weft::testing {

inline void append_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::app) << text;
}

// Owns a run's folder as a process that trains does.
class OwnedRun {
 public:
  explicit OwnedRun(const std::filesystem::path& run)
      : lock_(::open((run / "run.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) throw std::runtime_error("the run's folder cannot be locked");
  }

 private:
  Descriptor lock_;
};

// A page that looks anew at each question.
inline LivePage::Spec watched(std::vector<std::filesystem::path> runs) {
  return {.runs = std::move(runs), .plan = {}, .price_per_hour = {}, .refresh_each_s = 0};
}

inline nlohmann::json asked(LivePage& page, const std::string& path, const LivePage::Params& params = {}) {
  const PageAnswer answer = page.answer(path, params);
  nlohmann::json json = nlohmann::json::parse(answer.body);
  if (answer.status != 200) json["status"] = answer.status;
  return json;
}

}  // namespace weft::testing
