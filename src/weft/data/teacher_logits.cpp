#include "weft/data/teacher_logits.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "weft teacher logits 1";
constexpr const char* kAgain = "make it again: `weft teacher-logits`";

std::string header_of(const TeacherLogitsSpec& s) {
  std::string text = nlohmann::json{{"format", kFormat},          {"top", s.top},
                                    {"seq_length", s.seq_length}, {"num_samples", s.num_samples},
                                    {"vocab_size", s.vocab_size}, {"temperature", s.temperature},
                                    {"teacher", s.teacher},       {"samples", s.samples}}
                         .dump();
  WEFT_CHECK(int64_t(text.size()) < TeacherLogitsSpec::kHeaderBytes, "a header of {} bytes", text.size());
  text.resize(size_t(TeacherLogitsSpec::kHeaderBytes - 1), ' ');
  return text + "\n";
}

TeacherLogitsSpec spec_of(std::string_view file, const std::string& path) {
  const auto bytes = size_t(TeacherLogitsSpec::kHeaderBytes);
  if (file.size() < bytes || !file.starts_with("{"))
    throw FileError(
        fmt::format("{}: no file of a teacher's logits: it has no header of {} bytes; `weft teacher-logits` "
                    "makes one",
                    path, bytes));
  const nlohmann::json json = parse_json(file.substr(0, bytes), path);
  const JsonFields fields(json, path);
  if (fields.string("format") != kFormat)
    throw FileError(fmt::format("{}: \"format\": expected {}; {}", path, in_quotes(kFormat), kAgain));
  constexpr int64_t kMost = int64_t{1} << 31;
  TeacherLogitsSpec s{.top = fields.integer("top", {.max = kMost}),
                      .seq_length = fields.integer("seq_length", {.max = kMost}),
                      .num_samples = fields.integer("num_samples", {.max = int64_t{1} << 40}),
                      .vocab_size = fields.integer("vocab_size", {.max = kMost}),
                      .temperature = fields.number("temperature", {.min = 1e-4, .max = 1e4}),
                      .teacher = fields.string("teacher"),
                      .samples = fields.string("samples")};
  if (s.top > s.vocab_size)
    throw FileError(fmt::format("{}: \"top\": {} logits of {} tokens; {}", path, s.top, s.vocab_size, kAgain));
  const auto expected = static_cast<unsigned __int128>(s.num_samples) * static_cast<unsigned __int128>(s.seq_length) *
                            static_cast<unsigned __int128>(8 * s.top + 4) +
                        static_cast<unsigned __int128>(TeacherLogitsSpec::kHeaderBytes);
  if (expected != file.size())
    throw FileError(
        fmt::format("{}: {} bytes, but {} samples of {} tokens with {} logits each are {}: it is not whole; "
                    "{}",
                    path, file.size(), s.num_samples, s.seq_length, s.top, double(expected), kAgain));
  return s;
}

}  // namespace

bool is_teacher_logits(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::string head(size_t(TeacherLogitsSpec::kHeaderBytes), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(head.data(), std::streamsize(head.size()))) return false;
  return head.starts_with('{') && head.find(fmt::format("\"format\":\"{}\"", kFormat)) != head.npos;
}

TeacherLogits::TeacherLogits(const fs::path& file) : file_(file), spec_(spec_of(file_.text(), file.string())) {}

void TeacherLogits::read(int64_t sample, const TopRows& to) const {
  const auto tokens = size_t(spec_.seq_length), top = size_t(spec_.top);
  WEFT_CHECK(sample >= 0 && sample < spec_.num_samples, "sample {} of {}", sample, spec_.num_samples);
  WEFT_CHECK(to.ids.size() == tokens * top && to.logits.size() == tokens * top && to.lse.size() == tokens,
             "rows of {} x {} logits", to.lse.size(), to.top());
  const std::byte* at = file_.bytes().data() + spec_.sample_begin(sample);
  std::memcpy(to.ids.data(), at, to.ids.size_bytes());
  std::memcpy(to.logits.data(), at + to.ids.size_bytes(), to.logits.size_bytes());
  std::memcpy(to.lse.data(), at + to.ids.size_bytes() + to.logits.size_bytes(), to.lse.size_bytes());
  file_.check_whole();
  const auto refuse = [&](size_t token, const char* what) {
    throw FileError(fmt::format("{}: sample {}, token {}: {}; {}", path().string(), sample, token, what, kAgain));
  };
  for (size_t t = 0; t < tokens; ++t) {
    if (!std::isfinite(to.lse[t])) refuse(t, "the sum over all logits is not finite");
    int64_t before = -1;
    for (size_t i = t * top; i < (t + 1) * top; ++i) {
      if (to.ids[i] <= before || to.ids[i] >= spec_.vocab_size) refuse(t, "its ids do not ascend in the vocabulary");
      before = to.ids[i];
      // No logit's probability is above 1, but for what rounding to f32 does to a large one.
      if (!(double(to.logits[i]) / spec_.temperature - to.lse[t] <= 1e-3 + 1e-6 * std::abs(double(to.lse[t]))))
        refuse(t, "a logit is larger than the sum over all");
    }
  }
}

TeacherLogitsWriter::TeacherLogitsWriter(fs::path file, const TeacherLogitsSpec& spec, bool leads)
    : file_(std::move(file)),
      temporary_(file_.string() + ".tmp"),
      spec_(spec),
      leads_(leads),
      fd_(::open(temporary_.c_str(), leads ? O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC : O_WRONLY | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail("cannot be written");
  if (!leads_) return;
  const std::string header = header_of(spec_);
  put(0, header.data(), header.size());
  if (::ftruncate(fd_, spec_.sample_begin(spec_.num_samples)) != 0) fail("cannot be written");
}

TeacherLogitsWriter::~TeacherLogitsWriter() {
  std::error_code ignored;
  if (leads_ && !committed_) fs::remove(temporary_, ignored);
}

void TeacherLogitsWriter::fail(const char* what) const {
  throw FileError(
      fmt::format("{}: {}: {}; choose another place by --out", temporary_.string(), what, std::strerror(errno)));
}

void TeacherLogitsWriter::put(int64_t at, const void* bytes, size_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::pwrite(fd_, from, count, at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot be written");
    from += written;
    at += written;
    count -= size_t(written);
  }
}

void TeacherLogitsWriter::write(int64_t sample, int64_t first, const TopRows& rows) {
  WEFT_CHECK(rows.top() == spec_.top && first >= 0 && first + int64_t(rows.lse.size()) <= spec_.seq_length,
             "rows from {} on of {} logits", first, rows.top());
  const int64_t begin = spec_.sample_begin(sample), matrix = spec_.seq_length * spec_.top * 4;
  put(begin + first * spec_.top * 4, rows.ids.data(), rows.ids.size_bytes());
  put(begin + matrix + first * spec_.top * 4, rows.logits.data(), rows.logits.size_bytes());
  put(begin + 2 * matrix + first * 4, rows.lse.data(), rows.lse.size_bytes());
}

void TeacherLogitsWriter::commit() {
  WEFT_CHECK(leads_ && !committed_, "a file that is committed by another rank, or twice");
  if (::fsync(fd_) != 0) fail("cannot be written");
  if (::rename(temporary_.c_str(), file_.c_str()) != 0) fail("cannot be renamed");
  committed_ = true;
  sync_folder(file_.parent_path().empty() ? fs::path(".") : file_.parent_path());
}

}  // namespace weft
