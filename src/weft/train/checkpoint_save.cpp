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

struct CheckpointSave::Files {
  SafetensorsLayout weights, optimizer;
  std::unique_ptr<SharedWriter> to_weights = {}, to_optimizer = {}, to_more = {};
};

CheckpointSave::CheckpointSave(const fs::path& run, const TrainingState& state, CheckpointSource source,
                               std::optional<SharedFile> more)
    : state_(state),
      source_(std::move(source)),
      more_(std::move(more)),
      ranks_(*state.params.mesh().world),
      path_(run / "checkpoints" / fmt::format("step-{}", source_.progressed.step)),
      files_(
          new Files{.weights = hf_layout(source_.model, state.params.precision().stat),
                    .optimizer = optimizer_layout(source_.model, source_.optimizer, state.params.precision().stat)}) {
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
    create_files(folder_->building(), files_->weights);
    create_files(folder_->building() / "weft", files_->optimizer);
    if (more_) create_files(folder_->building() / "weft", more_->layout);
  });
}

// Or writes at once, where there is no room for one.
void CheckpointSave::take_snapshot() {
  const fs::path here = DurableFolder::building_name(path_);
  const Tensor& room = state_.snapshot;
  const std::span<std::byte> bytes = room ? bytes_of(room) : std::span<std::byte>();
  agree(ranks_, [&] {
    auto& weights = files_->to_weights;
    weights = room ? std::make_unique<SharedWriter>(here, files_->weights, bytes)
                   : std::make_unique<SharedWriter>(here, files_->weights);
    write_hf_weights(*weights, source_.model, state_.params);
    auto& optimizer = files_->to_optimizer;
    optimizer =
        room ? std::make_unique<SharedWriter>(here / "weft", files_->optimizer, bytes.subspan(size_t(weights->held())))
             : std::make_unique<SharedWriter>(here / "weft", files_->optimizer);
    for_each_kept(state_.params, Use::save, source_.optimizer, read_parts,
                  [&](const std::string& entry, int64_t offset, std::span<std::byte> from) {
                    optimizer->write(entry, offset, from);
                  });
    if (!more_) return;
    files_->to_more = std::make_unique<SharedWriter>(here / "weft", more_->layout);
    more_->write(*files_->to_more);
  });
  fault_point("copied", rank(), step());
  run_beside([this] {
    files_->to_weights->write_held();
    files_->to_optimizer->write_held();
    files_->to_weights->sync();
    files_->to_optimizer->sync();
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
    write_small_files();
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

void CheckpointSave::write_small_files() {
  std::vector<uint64_t> weight_sums = files_->to_weights->sums(), optimizer_sums = files_->to_optimizer->sums();
  sum_over(ranks_, weight_sums);
  sum_over(ranks_, optimizer_sums);
  std::vector<uint64_t> more_sums = files_->to_more ? files_->to_more->sums() : std::vector<uint64_t>();
  sum_over(ranks_, more_sums);
  agree(ranks_, [&] {
    if (rank() != 0) return;
    const fs::path here = folder_->building();
    write_file_durably(source_.adapter ? here / "weft" / "config.json" : here / "config.json",
                       source_.config.dump(2) + "\n");
    if (source_.adapter)
      write_file_durably(here / "adapter_config.json", to_json(*source_.adapter, source_.model).dump(2) + "\n");
    const std::string tokenizer = copy_companions(source_.model_folder, source_.tokenizer, here);
    write_file_durably(here / "weft" / "recipe.toml", source_.recipe);
    save_progress(here / "weft" / "state.json", source_.progressed, source_.is_tokenizer_known ? tokenizer : "");
    Manifest manifest{.step = step(), .files = {}};
    manifest.add("", files_->weights, weight_sums);
    manifest.add("weft/", files_->optimizer, optimizer_sums);
    if (more_) manifest.add("weft/", more_->layout, more_sums);
    manifest.add_others(here);
    write_file_durably(here / kManifestFile, to_text(manifest));
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
