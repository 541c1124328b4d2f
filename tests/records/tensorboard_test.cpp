#include "weft/records/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::slurp;
using testing::spill;
using testing::TempDir;

// A reader of its own, written from the formats' documents: bitwise crc, fields by number into a multimap.
uint32_t bitwise_crc32c(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t low = (crc ^ (uint8_t(c) >> bit)) & 1;
      crc = (crc >> 1) ^ (low ? 0x82f63b78 : 0);
    }
  }
  return crc ^ 0xffffffff;
}

template <typename T>
T number_at(const std::string& bytes, size_t offset) {
  if (offset + sizeof(T) > bytes.size()) throw std::runtime_error("truncated");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::vector<std::string> read_tfrecords(const std::string& file) {
  std::vector<std::string> records;
  auto check = [&](const std::string& bytes, uint32_t masked) {
    const uint32_t rotated = masked - 0xa282ead8;
    if (((rotated >> 17) | (rotated << 15)) != bitwise_crc32c(bytes)) throw std::runtime_error("bad crc");
  };
  for (size_t at = 0; at < file.size();) {
    const auto length = number_at<uint64_t>(file, at);
    check(file.substr(at, 8), number_at<uint32_t>(file, at + 8));
    records.push_back(file.substr(at + 12, length));
    check(records.back(), number_at<uint32_t>(file, at + 12 + length));
    at += length + 16;
  }
  return records;
}

struct Message {
  std::multimap<uint64_t, uint64_t> numbers;  // varint and fixed fields, as bits
  std::multimap<uint64_t, std::string> bytes;
};

uint64_t read_varint(const std::string& in, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = uint8_t(in.at(at++));
    value |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

Message read_message(const std::string& in) {
  Message message;
  for (size_t at = 0; at < in.size();) {
    const uint64_t key = read_varint(in, at);
    switch (key & 7) {
      case 0:
        message.numbers.emplace(key >> 3, read_varint(in, at));
        break;
      case 1:
        message.numbers.emplace(key >> 3, number_at<uint64_t>(in, at));
        at += 8;
        break;
      case 5:
        message.numbers.emplace(key >> 3, number_at<uint32_t>(in, at));
        at += 4;
        break;
      case 2: {
        const uint64_t length = read_varint(in, at);
        if (at + length > in.size()) throw std::runtime_error("truncated field");
        message.bytes.emplace(key >> 3, in.substr(at, length));
        at += length;
        break;
      }
      default:
        throw std::runtime_error("unknown wire type");
    }
  }
  return message;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  int64_t session_status = 0;
  std::map<std::string, float> scalars;
};

Event read_event(const std::string& record) {
  const Message message = read_message(record);
  Event event;
  std::memcpy(&event.wall_time, &message.numbers.find(1)->second, sizeof(double));
  event.step = int64_t(message.numbers.find(2)->second);
  if (const auto it = message.bytes.find(3); it != message.bytes.end()) event.version = it->second;
  if (const auto it = message.bytes.find(7); it != message.bytes.end()) {
    event.session_status = int64_t(read_message(it->second).numbers.find(1)->second);
  }
  if (const auto it = message.bytes.find(5); it != message.bytes.end()) {
    const Message summary = read_message(it->second);
    for (const auto& [field, bytes] : summary.bytes) {
      EXPECT_EQ(field, 1u);
      const Message value = read_message(bytes);
      const auto bits = uint32_t(value.numbers.find(2)->second);
      std::memcpy(&event.scalars[value.bytes.find(1)->second], &bits, sizeof bits);
    }
  }
  return event;
}

std::vector<Event> read_events(const std::filesystem::path& file) {
  std::vector<Event> events;
  for (const std::string& record : read_tfrecords(slurp(file))) events.push_back(read_event(record));
  return events;
}

// What TensorBoard keeps of a folder: files in the order of their names; a START drops values at its step and beyond.
std::map<int64_t, float> tensorboard_view(const std::filesystem::path& dir, const std::string& tag) {
  std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(dir), {});
  std::sort(files.begin(), files.end());
  std::map<int64_t, float> kept;
  for (const auto& file : files) {
    for (const Event& event : read_events(file)) {
      if (event.session_status == 1) kept.erase(kept.lower_bound(event.step), kept.end());
      if (event.scalars.contains(tag)) kept[event.step] = event.scalars.at(tag);
    }
  }
  return kept;
}

TEST(TensorBoard, Crc32cGivesThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);  // the check value of the catalogues
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4, here and below
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += char(i), falling += char(31 - i);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
}

TEST(TensorBoard, AFileBeginsWithItsVersionAndReadsBack) {
  TempDir dir;
  TensorBoardWriter writer({.dir = dir / "run", .now_s = 1700000000.5, .host = "box"});
  const StepRecord step{.step = 300,
                        .loss = 2.5,
                        .grad_norm = 0.5,
                        .lr = 3e-4,
                        .tokens_per_s = 1234,
                        .step_time_s = 0.25,
                        .mfu = 0.5,
                        .memory_bytes = 1 << 30};
  writer.append(step, 1700000001.25);
  writer.append(EvalRecord{.step = 300, .loss = 2, .perplexity = 7.5, .tokens = 1000}, 1700000002);

  EXPECT_EQ(writer.file(), dir / "run" / "events.out.tfevents.1700000000.box");
  const std::vector<Event> events = read_events(writer.file());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1700000000.5);
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[1].wall_time, 1700000001.25);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"train/loss", 2.5f},
                                                             {"train/grad_norm", 0.5f},
                                                             {"train/lr", 3e-4f},
                                                             {"speed/tokens_per_s", 1234.f},
                                                             {"speed/step_time_s", 0.25f},
                                                             {"speed/mfu", 0.5f},
                                                             {"memory/bytes", float(1 << 30)}}));
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"eval/loss", 2.f}, {"eval/perplexity", 7.5f}}));
}

TEST(TensorBoard, TheRoutersLossIsShownWhereThereIsOne) {
  TempDir dir;
  TensorBoardWriter writer({.dir = dir.path()});
  writer.append(StepRecord{.step = 1, .loss = 2, .aux_loss = 0.5}, 0);
  EXPECT_EQ(read_events(writer.file()).at(1).scalars.at("train/aux_loss"), 0.5f);
  writer.append(StepRecord{.step = 2, .loss = 2, .terms = {{"margin", -0.5}}}, 0);
  EXPECT_EQ(read_events(writer.file()).at(2).scalars.at("train/margin"), -0.5f);
}

TEST(TensorBoard, AResumedRunShowsNoOverlap) {
  TempDir dir;
  {
    TensorBoardWriter writer({.dir = dir.path(), .now_s = 100});
    for (int64_t step = 1; step <= 5; ++step) writer.append(StepRecord{.step = step, .loss = 1}, 100);
  }
  TensorBoardWriter writer({.dir = dir.path(), .now_s = 100, .last_step = 3});  // within the same second
  EXPECT_EQ(tensorboard_view(dir.path(), "train/loss"), (std::map<int64_t, float>{{1, 1.f}, {2, 1.f}, {3, 1.f}}));
  writer.append(StepRecord{.step = 4, .loss = 2}, 101);
  EXPECT_EQ(tensorboard_view(dir.path(), "train/loss"),
            (std::map<int64_t, float>{{1, 1.f}, {2, 1.f}, {3, 1.f}, {4, 2.f}}));
}

TEST(TensorBoard, ALaterFileSortsLaterEvenWhenTheClockWasSetBack) {
  TempDir dir;
  spill(dir / "events.out.tfevents.1700000000.zebra", "");
  TensorBoardWriter writer({.dir = dir.path(), .now_s = 1600000000, .host = "ant"});
  EXPECT_EQ(writer.file().filename(), "events.out.tfevents.1700000001.ant");
}

TEST(TensorBoard, AFolderThatCannotBeMadeIsNamed) {
  TempDir dir;
  spill(dir / "file", "");
  try {
    TensorBoardWriter writer({.dir = dir / "file" / "run"});
    ADD_FAILURE() << "no error";
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find((dir / "file").string()), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace weft
