// weft data run, audit, diff, train-ngram.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <set>
#include <thread>

#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/apps/failure.h"
#include "weft/apps/stage_text.h"
#include "weft/apps/stop_signal.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/pipeline/dataset.h"
#include "weft/pipeline/document_reader.h"
#include "weft/pipeline/input_files.h"
#include "weft/pipeline/ngram_model.h"
#include "weft/pipeline/pipeline_config.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

// Says on standard error how far it is: on a terminal in one line that changes, else in lines of a long stage.
class ProgressLine {
 public:
  explicit ProgressLine(const StageProgress& progress) : progress_(progress), thread_([this] { run(); }) {}
  ~ProgressLine() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
    clear();
  }
  void clear() const {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    StageTeller teller(terminal_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(500), [this] { return done_; })) {
      const double now_s = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
      // On a terminal one column stays free: some wrap when the last is filled.
      const size_t width = terminal_ ? size_t(std::max(terminal_width(STDERR_FILENO) - 1, 0)) : kPlainColumns;
      const std::string text = teller.look(progress_.view(), now_s, width);
      if (!text.empty()) std::cerr << (terminal_ ? "\r\033[K" + text : text + "\n") << std::flush;
    }
  }

  static constexpr size_t kPlainColumns = 1000;
  const StageProgress& progress_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

// The lines of a recipe that train on the dataset.
void say_recipe(const nlohmann::json& tokens, const std::filesystem::path& folder) {
  std::set<std::string> parts;
  for (const auto& file : tokens.at("files")) {
    const std::string prefix = file.at("prefix");
    parts.insert(prefix.substr(0, prefix.find('-')));
  }
  for (const std::string& part : parts)
    std::cout << fmt::format("data.{} = {}\n", part, nlohmann::json(folder.string()).dump());
}

}  // namespace

int run_data_run(const DataRunOptions& o) {
  const PipelineConfig config = parse_pipeline_file(o.pipeline);
  refuse(unusable_files(config), "pipeline");  // before the work that they would come after
  listen_to_signals("\nstopping after the shards that are being worked on; Ctrl-C again stops at once\n");
  StageProgress progress;
  const StageContext context{.threads = config.run.threads > 0 ? int(config.run.threads) : usable_cores(),
                             .samples = config.run.samples,
                             .shard_suffix = config.run.compression == "zst" ? ".jsonl.zst" : ".jsonl",
                             .again = o.again,
                             .helps = o.join,
                             .stop = stop_requested(),
                             .progress = progress};
  const std::filesystem::path folder = config.run.dir;
  bool came_in_time = false;
  std::vector<std::string> warnings;
  try {
    const ProgressLine line(progress);
    came_in_time = run_pipeline(config, o.stage, context, [&](const StageResult& stage) {
      line.clear();
      std::cout << stage_text(stage.manifest, folder) << std::flush;
      if (stage.manifest.at("stage") == "read")
        for (const auto& input : stage.manifest.at("inputs"))
          if (const std::string failure = failure_of(input); !failure.empty())
            warnings.push_back(fmt::format("{}: {}", input.at("file").get<std::string>(), failure));
      if (stage.counts.documents_out == 0)
        throw Error(fmt::format("no document is left after {}: what was dropped, and why, is above and in {}",
                                stage.manifest.at("stage").get<std::string>(), stage.folder.string()));
      if (stage.manifest.contains("files")) say_recipe(stage.manifest, folder);
    });
  } catch (const Interrupted& e) {
    std::cerr << e.what() << "\n";
    return kExitInterrupted;
  }
  if (!came_in_time)
    std::cout << fmt::format("{}: the dataset is complete; there is nothing to help\n", folder.string());
  else if (o.join)
    std::cout << fmt::format("helped: {} shards were made here\n", progress.view().shards_made);
  else if (o.stage.empty())
    std::cout << "version " << open_dataset(folder).version << "\n";
  std::cout << std::flush;
  for (const std::string& warning : warnings) std::cerr << "warning: " << warning << "\n";
  return kExitOk;
}

int run_data_audit(const DatasetOptions& o) {
  const Audit audit = audit_dataset(o.folders.at(0));
  for (const std::string& note : audit.notes) std::cout << "note: " << note << "\n";
  for (const std::string& problem : audit.problems) std::cout << problem << "\n";
  if (!audit.problems.empty())
    std::cout << "what is not as it was written can be removed: `weft data run` makes what is missing anew\n";
  std::cout << fmt::format(
      "{} files, {}: {}\n", audit.files, megabytes(double(audit.bytes)),
      audit.problems.empty() ? "as the manifest says" : fmt::format("{} problems", audit.problems.size()));
  return audit.problems.empty() ? kExitOk : kExitFailure;
}

int run_data_diff(const DatasetOptions& o) {
  std::vector<std::string> lines;
  try {
    lines = differences(open_dataset(o.folders.at(0)), open_dataset(o.folders.at(1)));
  } catch (const Error& e) {  // 1 means that they differ
    return say_error("data diff", e.what(), kExitUsage);
  }
  for (const std::string& line : lines) std::cout << line << "\n";
  if (lines.empty()) std::cout << "the same\n";
  return lines.empty() ? kExitOk : kExitFailure;
}

int run_data_train_ngram(const TrainNgramOptions& o) {
  NgramModel model(o.order);
  SourceConfig source;
  source.files = o.files;
  source.text_key = o.text_key;
  int64_t documents = 0, broken = 0, bytes = 0;
  constexpr int64_t kMostTold = 5;
  const std::vector<InputFile> inputs = input_files({source});
  prepare_output("--out", o.out, o.again);
  DocumentReader reader(source);
  for (const InputFile& input : inputs) {
    if (!input.unreadable.empty()) {
      std::cerr << fmt::format("{}: {}; left out\n", input.path, input.unreadable);
      continue;
    }
    const SourceFile file{.path = input.path, .format = format_of(source, input.path), .columns = {}};
    if (file.format == FileFormat::kCsv) throw ConfigError(input.path + ": train-ngram takes text, JSONL and WARC");
    const auto rows = open_rows(source, file, nullptr, {});
    const auto put_aside = [&](const Row& row, const std::string& why) {
      if (++broken <= kMostTold)
        std::cerr << fmt::format("{}: row {} at byte {}: {}; left out\n", input.path, row.number, row.begin, why);
    };
    for (Row row; rows->next(row);) {
      if (!row.broken.empty()) {
        put_aside(row, row.broken);
        continue;
      }
      Document d;
      try {
        if (!reader.read(file, row, d).empty()) continue;
      } catch (const Error& e) {
        put_aside(row, e.what());
        continue;
      }
      model.learn(d.text);
      ++documents;
      bytes += int64_t(d.text.size());
    }
    std::cerr << fmt::format("{}: {} so far\n", input.path, megabytes(double(bytes)));
  }
  if (documents == 0) throw FileError(fmt::format("{}: there is no text to learn from", o.files.at(0)));
  model.finish();
  model.write(o.out);
  std::cout << fmt::format("{}: from {} documents, {}; {} broken rows left out\n", o.out, documents,
                           megabytes(double(bytes)), broken);
  return kExitOk;
}

}  // namespace weft
