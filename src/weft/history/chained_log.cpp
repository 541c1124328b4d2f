#include "weft/history/chained_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "weft/base/descriptor.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/plain_file.h"
#include "weft/islands/keyed_hash.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kLongestEntry = 16 << 20;
constexpr size_t kHashDigits = 64;
constexpr std::string_view kHashField = R"(,"hash":")", kLineEnd = R"("})";

std::string hash_before_all() { return std::string(kHashDigits, '0'); }

struct LogLine {
  int64_t number = 0;
  std::string before, hash;
};

// None where the text is no line of a log, or not what its hash says.
std::optional<LogLine> line_of(std::string_view text) {
  constexpr size_t kTail = kHashField.size() + kHashDigits + kLineEnd.size();
  if (text.size() <= kTail || !text.ends_with(kLineEnd)) return {};
  const std::string_view said = text.substr(0, text.size() - kTail), tail = text.substr(said.size());
  const std::string hash(tail.substr(kHashField.size(), kHashDigits));
  if (!tail.starts_with(kHashField) || sha256_hex(said) != hash) return {};
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("n") || !json["n"].is_number_integer() || !json.contains("before") ||
      !json["before"].is_string())
    return {};
  return LogLine{.number = json["n"].get<int64_t>(), .before = json["before"].get<std::string>(), .hash = hash};
}

[[noreturn]] void fail(const fs::path& file, const char* what) {
  throw FileError(fmt::format("{}: cannot be {}: {}", file.string(), what, std::strerror(errno)));
}

std::string end_of_file(int fd, const fs::path& file, int64_t bytes) {
  std::string text(std::min(size_t(bytes), kLongestEntry + 1), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::pread(fd, text.data() + done, text.size() - done, bytes - off_t(text.size() - done));
    if (n > 0) done += size_t(n);
    if (n == 0 || (n < 0 && errno != EINTR)) fail(file, "read");
  }
  return text;
}

// The line that the next one follows, of the text that the file ends with.
LogLine last_line(const fs::path& file, std::string_view text) {
  if (text.empty()) return {.number = 0, .before = {}, .hash = hash_before_all()};
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (const size_t begin = text.rfind('\n'); begin != text.npos) text.remove_prefix(begin + 1);
  if (const auto line = line_of(text)) return *line;
  throw FileError(
      fmt::format("{0}: its last line is torn, as a crash leaves it, or it was changed: nothing is appended to it. "
                  "`weft log verify "
                  "{0}` says which line it is; move the file away, or take out what is not whole",
                  file.string()));
}

// Writes all of it, or leaves the file as it was.
void write_whole(int fd, const fs::path& file, int64_t end, const std::string& text) {
  const ssize_t written = ::write(fd, text.data(), text.size());
  const int reason = written < 0 ? errno : ENOSPC;
  if (written == ssize_t(text.size()) && ::fsync(fd) == 0) return;
  if (written == ssize_t(text.size())) fail(file, "brought to the disk");
  if (written > 0 && ::ftruncate(fd, end) != 0) fail(file, "mended: its last line is torn");
  errno = reason;
  fail(file, "written");
}

std::string fault_of(const LogLine& line, int64_t wanted, const std::string& before) {
  if (line.number > wanted)
    return fmt::format("line {}: is entry {}: what stood before it was taken out", wanted, line.number);
  if (line.number < wanted)
    return fmt::format("line {}: is entry {} once more: it was put in, or moved", wanted, line.number);
  if (line.before == before) return "";
  return wanted == 1 ? "line 1: names a line before it: it was put in place of the first one"
                     : fmt::format("line {}: does not follow line {}: one of the two was put in place of another",
                                   wanted, wanted - 1);
}

}  // namespace

std::string log_time() {
  const time_t now = ::time(nullptr);
  struct tm parts = {};
  char text[32] = "";
  ::gmtime_r(&now, &parts);
  ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string append_to_log(const fs::path& file, const Json& entry) {
  for (const char* key : {"n", "before", "hash"}) WEFT_CHECK(!entry.contains(key), "an entry of a log with {}", key);
  is_plain_file(file, std::numeric_limits<int64_t>::max());  // refuses a pipe, a folder
  if (file.has_parent_path()) create_folders(file.parent_path());
  const Descriptor fd(::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (fd < 0) fail(file, "opened");
  while (::flock(fd, LOCK_EX) != 0)
    if (errno != EINTR) fail(file, "locked");
  const int64_t end = ::lseek(fd, 0, SEEK_END);
  if (end < 0) fail(file, "read");
  const std::string tail = end_of_file(fd, file, end);
  const LogLine last = last_line(file, tail);
  Json line{{"n", last.number + 1}};
  line.update(entry);
  line["before"] = last.hash;
  std::string said = line.dump(-1, ' ', false, Json::error_handler_t::replace);
  said.pop_back();  // the bracket
  const std::string hash = sha256_hex(said);
  const std::string text = fmt::format("{}{}{}{}", said, kHashField, hash, kLineEnd);
  if (text.size() > kLongestEntry) throw FileError(fmt::format("{}: an entry is too long for a log", file.string()));
  const bool is_open = !tail.empty() && tail.back() != '\n';  // an editor has taken the last line's end
  write_whole(fd, file, end, (is_open ? "\n" : "") + text + "\n");
  if (end == 0) sync_folder(file.has_parent_path() ? file.parent_path() : ".");
  return hash;
}

LogCheck check_log(const fs::path& file, const std::string& hash) {
  if (!is_plain_file(file, std::numeric_limits<int64_t>::max()))
    throw FileError(fmt::format("{}: no such file", file.string()));
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(file, "read");
  LogCheck check;
  std::string before = hash_before_all();
  for (std::string text; std::getline(in, text);) {
    const int64_t wanted = check.lines + 1;
    const auto line = line_of(text);
    check.fault = line ? fault_of(*line, wanted, before)
                       : fmt::format("line {}: is not what its hash says: it was changed, put in, or torn", wanted);
    if (!check.fault.empty()) return check;
    check.lines = wanted;
    check.head = before = line->hash;
    check.has_hash = check.has_hash || line->hash == hash;
  }
  return check;
}

}  // namespace weft
