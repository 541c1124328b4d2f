// What a run writes now and then for who looks at it (the live page).
#include <fstream>

#include "weft/base/error.h"
#include "weft/train/trainer.h"

namespace weft {
namespace {

constexpr int64_t kSentInterval = 100;  // steps
constexpr int kMostRanksOfSent = 1024;  // of which each tells some bytes for each other

}  // namespace

// Whether what ranks sent in the step that is just done is told.
bool Trainer::tells_sent() const {
  const int world = rank_.mesh.world->size();
  return world > 1 && world <= kMostRanksOfSent && (!has_told_sent_ || step_ % kSentInterval == 0);
}

void Trainer::tell_sent(const StepRecord& record) {
  if (!tells_sent()) return;
  has_told_sent_ = true;
  nlohmann::json sent = sent_.wait_gather(*rank_.mesh.world);
  if (!leads()) return;
  sent["step"] = record.step;
  sent["step_time_s"] = record.step_time_s;
  replace_record("traffic.json", sent.dump() + "\n");
}

// Whether the step to come is traced.
bool Trainer::traces() const {
  const int64_t interval = recipe_.train.trace_interval;
  return interval > 0 && (step_ + 1) % interval == 0;
}

bool Trainer::samples_due() const { return !samples_.empty() && due(recipe_.train.sample_interval); }

// A line in samples.jsonl. Where a step ran twice (a crash, a resume), the later line counts.
void Trainer::write_samples() {
  enter(RunSection::tasks);
  const auto texts = samples_.write(*writer_, rank_.plan.step.writes, [this] { return stopped(); });
  if (!texts || !leads()) return;
  nlohmann::json all = nlohmann::json::array();
  for (size_t i = 0; i < texts->size(); ++i) all.push_back({{"prompt", samples_.prompts()[i]}, {"text", (*texts)[i]}});
  append_record("samples.jsonl", {{"step", step_}, {"samples", all}});
}

// Whoever reads it finds it whole.
void Trainer::replace_record(const std::string& name, std::string_view content) {
  records_->attempt(name, [&] {
    const auto file = std::filesystem::path(recipe_.run.dir) / name;
    const std::filesystem::path beside = file.string() + ".tmp";
    std::ofstream out(beside);
    out << content << std::flush;
    std::error_code failed;
    if (out) std::filesystem::rename(beside, file, failed);
    if (!out || failed) throw FileError(fmt::format("{}: cannot be written; is the disk full?", file.string()));
  });
}

}  // namespace weft
