// TensorBoard event files: what `tensorboard --logdir RUN` draws. A file is a sequence of TFRecords
//   uint64 length | uint32 masked crc32c of length | bytes | uint32 masked crc32c of bytes        all little-endian
// whose bytes are protocol buffers of type Event (tensorflow/core/util/event.proto), here encoded by hand.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "weft/base/descriptor.h"
#include "weft/records/metrics_log.h"

namespace weft {

// CRC-32C (Castagnoli), as of RFC 3720 B.4.
uint32_t crc32c(std::string_view bytes);
// As TFRecords keep it, so that a crc over bytes that hold crcs stays sound: rotated right by 15, plus a constant.
uint32_t masked_crc32c(std::string_view bytes);

// One event file of one run, written by one process. Throws FileError; the file then ends with the record before. Times
// are seconds since 1970. Tags: train/loss, train/aux_loss (while it is not 0), train/NAME of each
// term of an objective, train/grad_norm, train/lr,
// speed/tokens_per_s, speed/step_time_s, speed/mfu, memory/bytes, eval/loss, eval/perplexity,
// tasks/NAME of each result.
class TensorBoardWriter {
 public:
  struct Spec {
    std::filesystem::path dir;  // created if absent
    double now_s = 0;
    std::string host = "localhost";
    int64_t last_step = -1;  // of a resumed run: TensorBoard forgets what earlier files say of the steps after it
  };
  // Begins events.out.tfevents.<seconds>.<host>, never an existing file; where files of this second or later are there
  // (a quick restart, a clock set back), <seconds> follows on the latest, because TensorBoard reads files by name.
  explicit TensorBoardWriter(const Spec& spec);

  void append(const StepRecord& record, double now_s);
  void append(const EvalRecord& record, double now_s);
  void append(const TasksRecord& record, double now_s);
  const std::filesystem::path& file() const { return file_; }

 private:
  void append_event(std::string_view event);

  std::filesystem::path file_;
  Descriptor fd_;
  int64_t size_ = 0;  // bytes of whole records
};

}  // namespace weft
