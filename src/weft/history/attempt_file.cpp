#include "weft/history/attempt_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/plain_file.h"
#include "weft/records/events.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kMostAttemptBytes = 64 << 20;

fs::path attempt_file_of(const fs::path& run) { return run / "attempts.jsonl"; }

void append_json(const fs::path& file, const Json& value) {
  append_line(file, value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// A field that somebody else may have written: of another type it counts as not there.
std::string text_at(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}
double number_of(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : 0;
}
// Whole numbers that other programs may have written as 1e300.
int64_t whole_of(const Json& line, const char* key, int64_t most) {
  const double value = number_of(line, key);
  return value >= double(-most) && value <= double(most) ? int64_t(value) : 0;
}

// Whether the line was one.
bool take_line(const std::string& text, std::vector<RunAttempt>& attempts) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return false;
  const std::string what = text_at(line, "attempt");
  const double time = number_of(line, "time");
  if (what == "begun") {
    attempts.push_back({.began_s = time,
                        .weft = text_at(line, "weft"),
                        .program = text_at(line, "program"),
                        .host = text_at(line, "host"),
                        .machine = text_at(line, "machine"),
                        .folder = text_at(line, "folder"),
                        .from = text_at(line, "from"),
                        .ranks = whole_of(line, "ranks", 1 << 30),
                        .launcher = text_at(line, "launcher")});
  } else if (what == "ended" && !attempts.empty() && !attempts.back().end) {
    attempts.back().end = RunAttempt::End{
        .time_s = time, .status = int(whole_of(line, "status", 1 << 20)), .reason = text_at(line, "reason")};
  } else {
    return false;
  }
  return true;
}

}  // namespace

void append_attempt(const fs::path& run, const RunAttempt& a) {
  Json line{{"attempt", "begun"},   {"time", a.began_s},  {"weft", a.weft},   {"program", a.program},  {"host", a.host},
            {"machine", a.machine}, {"folder", a.folder}, {"ranks", a.ranks}, {"launcher", a.launcher}};
  if (!a.from.empty()) line["from"] = a.from;
  append_json(attempt_file_of(run), line);
}

void append_attempt_end(const fs::path& run, const RunAttempt::End& end) {
  Json line{{"attempt", "ended"}, {"time", end.time_s}, {"status", end.status}};
  if (!end.reason.empty()) line["reason"] = end.reason;
  append_json(attempt_file_of(run), line);
}

std::vector<RunAttempt> read_attempts(const fs::path& run, std::vector<std::string>& problems) {
  const fs::path file = attempt_file_of(run);
  std::vector<RunAttempt> attempts;
  if (!is_plain_file(file, kMostAttemptBytes)) return attempts;
  std::ifstream in(file, std::ios::binary);
  if (!in) throw FileError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  int64_t number = 0, first = 0, damaged = 0;
  for (std::string text; std::getline(in, text) && !in.eof();) {  // a torn last line is what a crash leaves
    ++number;
    if (!take_line(text, attempts) && damaged++ == 0) first = number;
  }
  if (damaged > 0)
    problems.push_back(fmt::format("{}:{}: is no line of an attempt, like {} line{} in all: passed over", file.string(),
                                   first, damaged, damaged == 1 ? "" : "s"));
  return attempts;
}

}  // namespace weft
