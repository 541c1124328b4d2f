// How a run takes part in an exchange with other islands.
#include "weft/records/clock.h"
#include "weft/train/trainer.h"

namespace weft {

void Trainer::join_islands(const IslandSetup& setup, const std::optional<std::filesystem::path>& checkpoint) {
  island_ = std::make_unique<JoinedIsland>(JoinedIsland::Spec{.setup = setup,
                                                              .recipe = recipe_,
                                                              .rank = rank_,
                                                              .data = data_.train->fingerprint(),
                                                              .checkpoint = checkpoint,
                                                              .tell =
                                                                  [this](const std::string& text) {
                                                                    const std::string note = fmt::format(
                                                                        "step {}: islands: {}", step_, text);
                                                                    if (records_)
                                                                      records_->note(note);
                                                                    else
                                                                      notes_.push_back(note);
                                                                  },
                                                              .stopped = [this] { return bool(stop_); }});
  notes_.push_back(fmt::format("island {} of {}: the outer weights take {} bytes of a rank's host beside the plan",
                               islands_.number, islands_.count, island_->state().bytes()));
  IslandMember& member = island_->member();
  step_ = member.begin(step_, !checkpoint);
  notes_.push_back(fmt::format("islands: to begin, {} bytes were sent and {} received", member.sent_bytes(),
                               member.received_bytes()));
  if (!member.has_changed()) return;
  saved_step_ = evaluated_step_ = -1;  // the checkpoint that is there has other weights
  results_.reset();
  adapter_changed_ = true;
}

// After a step: what came of it is for the metrics, by which `bytes_per_token` is of this start of the run.
void Trainer::exchange(StepRecord& record) {
  if (!island_ || !island_->member().is_due(step_)) return;
  enter(RunSection::islands);
  IslandMember& member = island_->member();
  const int64_t sent = member.sent_bytes(), received = member.received_bytes();
  double took = 0;
  add_time(took, [&] { step_ = member.exchange(step_); });
  if (!leads()) return;
  record.terms.emplace_back("island_s", took);
  record.terms.emplace_back("island_rounds", double(member.age().rounds));
  record.terms.emplace_back("island_bytes_sent", double(member.sent_bytes() - sent));
  record.terms.emplace_back("island_bytes_received", double(member.received_bytes() - received));
  record.terms.emplace_back("island_bytes_sent_per_token", double(member.sent_since_begin()) / double(island_tokens_));
}

}  // namespace weft
