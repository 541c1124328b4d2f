#include "weft/train/checkpoint_save.h"

#include <utility>

#include "weft/base/durable_file.h"
#include "weft/base/fault_point.h"
#include "weft/comm/agree.h"
#include "weft/device/host_parts.h"
#include "weft/models/hf_weights.h"
#include "weft/step/kept_states.h"
#include "weft/train/checkpoint_companions.h"

namespace weft {

namespace fs = std::filesystem;

CheckpointLayouts::CheckpointLayouts(const CheckpointSource& source, DType stat)
    : weights(hf_layout(source.model, stat)), optimizer(optimizer_layout(source.model, source.optimizer, stat)) {}

ShareWriters write_share(const fs::path& here, const CheckpointLayouts& layouts, std::span<std::byte> room,
                         const CheckpointSource& source, const TrainingState& state) {
  ShareWriters to;
  to.weights = room.empty() ? std::make_unique<SharedWriter>(here, layouts.weights)
                            : std::make_unique<SharedWriter>(here, layouts.weights, room);
  write_hf_weights(*to.weights, source.model, state.params);
  to.optimizer = room.empty() ? std::make_unique<SharedWriter>(here / "weft", layouts.optimizer)
                              : std::make_unique<SharedWriter>(here / "weft", layouts.optimizer,
                                                               room.subspan(size_t(to.weights->held())));
  for_each_kept(state.params, Use::save, source.optimizer, read_parts,
                [&](const std::string& entry, int64_t offset, std::span<std::byte> from) {
                  to.optimizer->write(entry, offset, from);
                });
  return to;
}

void write_small_files(const fs::path& here, const CheckpointSource& source, const CheckpointLayouts& layouts,
                       const TensorSums& sums, const SafetensorsLayout* more) {
  write_file_durably(source.adapter ? here / "weft" / "config.json" : here / "config.json",
                     source.config.dump(2) + "\n");
  if (source.adapter)
    write_file_durably(here / "adapter_config.json", to_json(*source.adapter, source.model).dump(2) + "\n");
  const std::string tokenizer = copy_companions(source.model_folder, source.tokenizer, here);
  write_file_durably(here / "weft" / "recipe.toml", source.recipe);
  save_progress(here / "weft" / "state.json", source.progressed, source.is_tokenizer_known ? tokenizer : "");
  Manifest manifest{.step = source.progressed.step, .files = {}};
  manifest.add("", layouts.weights, sums.weights);
  manifest.add("weft/", layouts.optimizer, sums.optimizer);
  if (more != nullptr) manifest.add("weft/", *more, sums.more);
  manifest.add_others(here);
  write_file_durably(here / kManifestFile, to_text(manifest));
}

struct CheckpointSave::Files {
  CheckpointLayouts layouts;
  ShareWriters to = {};
  std::unique_ptr<SharedWriter> to_more = {};
};

CheckpointSave::CheckpointSave(const fs::path& run, const TrainingState& state, CheckpointSource source,
                               std::optional<SharedFile> more)
    : state_(state),
      source_(std::move(source)),
      more_(std::move(more)),
      ranks_(*state.params.mesh().world),
      path_(run / "checkpoints" / fmt::format("step-{}", source_.progressed.step)),
      files_(new Files{.layouts = CheckpointLayouts(source_, state.params.precision().stat)}) {
  create();
  take_snapshot();
}

CheckpointSave::~CheckpointSave() {
  if (thread_.joinable()) thread_.join();
}

int CheckpointSave::rank() const { return ranks_.rank(); }

void CheckpointSave::create() {
  agree(ranks_, [&] {
    if (rank() != 0) return;
    create_folders(path_.parent_path());
    folder_ = std::make_unique<DurableFolder>(path_);
    create_folders(folder_->building() / "weft");
    create_files(folder_->building(), files_->layouts.weights);
    create_files(folder_->building() / "weft", files_->layouts.optimizer);
    if (more_) create_files(folder_->building() / "weft", more_->layout);
  });
}

// Or writes at once, where there is no room for one.
void CheckpointSave::take_snapshot() {
  const fs::path here = DurableFolder::building_name(path_);
  const Tensor& room = state_.snapshot;
  agree(ranks_, [&] {
    files_->to = write_share(here, files_->layouts, room ? bytes_of(room) : std::span<std::byte>(), source_, state_);
    if (!more_) return;
    files_->to_more = std::make_unique<SharedWriter>(here / "weft", more_->layout);
    more_->write(*files_->to_more);
  });
  fault_point("copied", rank(), step());
  run_beside([this] {
    files_->to.weights->write_held();
    files_->to.optimizer->write_held();
    files_->to.weights->sync();
    files_->to.optimizer->sync();
    if (files_->to_more) files_->to_more->sync();
    fault_point("written", rank(), step());
  });
}

void CheckpointSave::run_beside(const std::function<void()>& f) {
  is_done_ = false;
  thread_ = std::thread([this, f] {
    try {
      f();
    } catch (const std::exception& e) { failure_ = e.what(); }
    is_done_ = true;
  });
}

void CheckpointSave::join() {
  if (thread_.joinable()) thread_.join();
  agree(ranks_, [&] {
    if (!failure_.empty()) throw FileError(failure_);
  });
}

bool CheckpointSave::advance() {
  double busy = is_done_ ? 0 : 1;
  ranks_.all_reduce({&busy, DType::f64, {1}}).wait();
  if (busy > 0) return false;
  join();
  if (doing_ == Doing::writes) {
    finish_writing();
    begin_to_read();
  } else if (doing_ == Doing::reads) {
    judge();
  }
  return doing_ == Doing::nothing;
}

void CheckpointSave::wait() {
  do {
    if (thread_.joinable()) thread_.join();
  } while (!advance());
}

void CheckpointSave::finish_writing() {
  TensorSums sums{files_->to.weights->sums(), files_->to.optimizer->sums(),
                  files_->to_more ? files_->to_more->sums() : std::vector<uint64_t>()};
  sum_over(ranks_, sums.weights);
  sum_over(ranks_, sums.optimizer);
  sum_over(ranks_, sums.more);
  agree(ranks_, [&] {
    if (rank() == 0)
      write_small_files(folder_->building(), source_, files_->layouts, sums, more_ ? &more_->layout : nullptr);
  });
  files_.reset();  // and with it what is open
}

namespace {

FileError not_as_written(const char* damage) {
  return FileError(fmt::format("{}: what is read is not what was written; is the disk sound?", damage));
}

}  // namespace

void CheckpointSave::begin_to_read() {
  doing_ = Doing::reads;
  const fs::path here = DurableFolder::building_name(path_);
  drop_from_memory(here);
  run_beside([this, here] {
    try {
      check_ = std::make_unique<CheckpointCheck>(here, CheckpointPart::all);
      sums_ = check_->sums_of_share(rank(), ranks_.size(), source_.num_threads);
    } catch (const DamageError& e) { throw not_as_written(e.what()); }
    fault_point("read", rank(), step());
  });
}

void CheckpointSave::judge() {
  sum_over(ranks_, sums_);
  agree(ranks_, [&] {
    try {
      check_->judge(sums_);
    } catch (const DamageError& e) { throw not_as_written(e.what()); }
    if (rank() != 0) return;
    folder_->commit();
    fault_point("committed", rank(), step());
  });
  doing_ = Doing::nothing;
}

}  // namespace weft
