#include "weft/records/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <span>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

template <typename T>
void put_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += char(value >> (8 * i));
}

// Fields of protocol buffers: a key (number, wire type), then the value.
enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}
void put_key(std::string& out, uint32_t field, Wire wire) { put_varint(out, field << 3 | uint32_t(wire)); }
void put_int(std::string& out, uint32_t field, int64_t value) {
  put_key(out, field, Wire::varint);
  put_varint(out, uint64_t(value));
}
void put_double(std::string& out, uint32_t field, double value) {
  put_key(out, field, Wire::fixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}
void put_float(std::string& out, uint32_t field, float value) {
  put_key(out, field, Wire::fixed32);
  put_little_endian(out, std::bit_cast<uint32_t>(value));
}
void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//                 SessionLog session_log = 7; }
std::string event_at(double now_s, int64_t step) {
  std::string event;
  put_double(event, 1, now_s);
  put_int(event, 2, step);
  return event;
}

struct Scalar {
  std::string_view tag;
  double value;
};

// message Summary { repeated Value value = 1; }   message Value { string tag = 1; float simple_value = 2; }
std::string scalars_event(double now_s, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_float(value, 2, float(scalar.value));
    put_bytes(summary, 1, value);
  }
  std::string event = event_at(now_s, step);
  put_bytes(event, 5, summary);
  return event;
}

std::string version_event(double now_s) {
  std::string event = event_at(now_s, 0);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

// message SessionLog { SessionStatus status = 1; } with START = 1: purges every earlier value at `step` and beyond.
std::string restart_event(double now_s, int64_t step) {
  std::string log;
  put_int(log, 1, 1);
  std::string event = event_at(now_s, step);
  put_bytes(event, 7, log);
  return event;
}

// The seconds in the name of the latest event file in `dir`, or -1.
int64_t latest_file_s(const std::filesystem::path& dir) {
  int64_t latest = -1;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFilePrefix)) continue;
    int64_t seconds = -1;
    std::from_chars(name.data() + kFilePrefix.size(), name.data() + name.size(), seconds);
    latest = std::max(latest, seconds);
  }
  return latest;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc32c_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ uint8_t(c)) & 0xff];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

TensorBoardWriter::TensorBoardWriter(const Spec& spec) {
  std::error_code error;
  std::filesystem::create_directories(spec.dir, error);
  if (error) throw FileError(fmt::format("{}: cannot be created: {}", spec.dir.string(), error.message()));
  const int64_t seconds = std::max(int64_t(spec.now_s), latest_file_s(spec.dir) + 1);
  // Ten digits always, so that the order of names is the order of times.
  file_ = spec.dir / fmt::format("{}{:010}.{}", kFilePrefix, seconds, spec.host);
  fd_ = Descriptor(::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (fd_ < 0) throw FileError(fmt::format("{}: cannot be created: {}", file_.string(), std::strerror(errno)));
  try {
    append_event(version_event(spec.now_s));
    if (spec.last_step >= 0) append_event(restart_event(spec.now_s, spec.last_step + 1));
  } catch (const FileError&) {  // it is tried again: leave no empty file each time
    ::unlink(file_.c_str());
    throw;
  }
}

void TensorBoardWriter::append(const StepRecord& r, double now_s) {
  std::vector<Scalar> scalars = {
      {"train/loss", r.loss},
      {"train/grad_norm", r.grad_norm},
      {"train/lr", r.lr},
      {"speed/tokens_per_s", r.tokens_per_s},
      {"speed/step_time_s", r.step_time_s},
      {"speed/mfu", r.mfu},
      {"memory/bytes", double(r.memory_bytes)},
  };
  if (r.aux_loss != 0) scalars.push_back({"train/aux_loss", r.aux_loss});
  if (r.z_loss != 0) scalars.push_back({"train/z_loss", r.z_loss});
  if (r.mtp_loss != 0) scalars.push_back({"train/mtp_loss", r.mtp_loss});
  if (r.loss_scale > 0) scalars.push_back({"train/loss_scale", r.loss_scale});
  std::deque<std::string> tags;
  for (const auto& [name, value] : r.terms) scalars.push_back({tags.emplace_back("train/" + name), value});
  append_event(scalars_event(now_s, r.step, scalars));
}

void TensorBoardWriter::append(const EvalRecord& r, double now_s) {
  std::vector<Scalar> scalars{{"eval/loss", r.loss}};
  if (r.terms.empty()) scalars.push_back({"eval/perplexity", r.perplexity});
  std::deque<std::string> tags;
  for (const auto& [name, value] : r.terms) scalars.push_back({tags.emplace_back("eval/" + name), value});
  append_event(scalars_event(now_s, r.step, scalars));
}

void TensorBoardWriter::append(const TasksRecord& r, double now_s) {
  std::vector<Scalar> scalars;
  std::deque<std::string> tags;
  for (const auto& [name, value] : r.results)
    if (!name.ends_with("_stderr")) scalars.push_back({tags.emplace_back("tasks/" + name), value});
  append_event(scalars_event(now_s, r.step, scalars));
}

void TensorBoardWriter::append_event(std::string_view event) {
  std::string record;
  put_little_endian(record, uint64_t(event.size()));
  put_little_endian(record, masked_crc32c(record));
  record += event;
  put_little_endian(record, masked_crc32c(event));
  for (size_t done = 0; done < record.size();) {
    const ssize_t written = ::write(fd_, record.data() + done, record.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = errno;
      const bool cut = ::ftruncate(fd_, size_) == 0;  // a torn record would hide those behind it
      throw FileError(fmt::format("{}: cannot be written: {}{}", file_.string(), std::strerror(error),
                                  cut ? "" : " (and its last record is torn)"));
    }
    done += size_t(written);
  }
  size_ += int64_t(record.size());
}

}  // namespace weft
