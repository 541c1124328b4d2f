// Training samples beside which logits of a teacher are stored.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "weft/data/training_samples.h"

namespace weft {

// Another's samples, with what `read_top` (called from any thread) gives for them, of which `source` is the
// fingerprint.
class TaughtSamples final : public TrainingSamples {
 public:
  using ReadTop = std::function<void(int64_t global_sample, const TopRows& to)>;
  TaughtSamples(std::shared_ptr<const TrainingSamples> samples, ReadTop read_top, const std::string& source)
      : samples_(std::move(samples)),
        read_top_(std::move(read_top)),
        fingerprint_(samples_->fingerprint() + " teacher=" + source) {}

  void read(int64_t k, const SampleRows& to) const override { samples_->read(k, to); }
  void read_top(int64_t k, const TopRows& to) const override { read_top_(k, to); }
  OpenSource::Counted counted(int64_t k) const override { return samples_->counted(k); }
  int64_t samples_per_epoch() const override { return samples_->samples_per_epoch(); }
  Walked walked_most(double drawn) const override { return samples_->walked_most(drawn); }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& order_fingerprint() const override { return samples_->order_fingerprint(); }

 private:
  const std::shared_ptr<const TrainingSamples> samples_;
  const ReadTop read_top_;
  const std::string fingerprint_;
};

}  // namespace weft
