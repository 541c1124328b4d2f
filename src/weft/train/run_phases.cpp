#include "weft/train/run_phases.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "weft/data/sample_order.h"
#include "weft/train/data_files.h"

namespace weft {
namespace {

// A source, by its files; without weights all are one.
using SourceFiles = std::vector<std::string>;

std::vector<SourceFiles> sources_of(const DataFiles& files) {
  std::vector<std::string> paths;
  for (const std::string& path : files.paths)
    paths.push_back(std::filesystem::absolute(path).lexically_normal().string());
  if (files.weights.empty()) return {paths};
  std::vector<SourceFiles> sources;
  auto next = paths.begin();
  for (const int64_t count : files.files_of_source) {
    sources.emplace_back(next, next + count);
    next += count;
  }
  return sources;
}

// The file of rows that the recipe reads.
SourceFiles row_file_of(const Recipe& recipe) {
  const std::string_view key = data_key_of(recipe.train.objective);
  const std::string& file = key == "data.pairs"      ? recipe.data.pairs
                            : key == "data.rollouts" ? recipe.data.rollouts
                                                     : recipe.data.examples;
  return {std::filesystem::absolute(file).lexically_normal().string()};
}

// How many rows are taken for so many samples, of which each step has a batch: a batch may come several times.
int64_t rows_taken(const Recipe& recipe, int64_t samples) {
  const bool rollouts = data_key_of(recipe.train.objective) == "data.rollouts";
  const int64_t batch = recipe.train.global_batch_size, times = rollouts ? recipe.objective.inner_updates : 1;
  return (samples / batch + times - 1) / times * batch;
}

// What was read of each source, in tokens or rows, over all mixes so far.
class ReadSoFar {
 public:
  void add(const Recipe& recipe, int64_t samples) {
    if (!reads_tokens(recipe.train.objective)) {
      rows_[row_file_of(recipe)] += rows_taken(recipe, samples);
      return;
    }
    const DataFiles files = training_files_of(recipe);
    const std::vector<SourceFiles> sources = sources_of(files);
    const std::vector<int64_t> dealt =
        files.weights.empty() ? std::vector<int64_t>{samples} : Mixture(files.weights).dealt(samples);
    for (size_t i = 0; i < sources.size(); ++i) tokens_[sources[i]] += dealt[i] * recipe.train.seq_length;
  }
  // In samples of this recipe, rounded up; in rows, to whole groups.
  std::vector<int64_t> begun(const Recipe& recipe) {
    if (!reads_tokens(recipe.train.objective)) {
      const int64_t rows = rows_[row_file_of(recipe)];
      const int64_t group = recipe.train.objective == ObjectiveKind::grpo ? recipe.objective.group_size : 1;
      return {(rows + group - 1) / group * group};
    }
    std::vector<int64_t> all;
    for (const SourceFiles& source : sources_of(training_files_of(recipe)))
      all.push_back((tokens_[source] + recipe.train.seq_length - 1) / recipe.train.seq_length);
    return all;
  }

 private:
  std::map<SourceFiles, int64_t> tokens_, rows_;
};

bool same_mix(const Recipe& a, const Recipe& b) {
  if (a.data != b.data || a.train.seq_length != b.train.seq_length) return false;
  const bool tokens = reads_tokens(a.train.objective);
  if (tokens != reads_tokens(b.train.objective)) return false;
  if (tokens) return a.objective.teacher_logits == b.objective.teacher_logits;
  // Which rows a step takes together.
  return a.train.objective == b.train.objective && a.train.global_batch_size == b.train.global_batch_size &&
         a.objective.inner_updates == b.objective.inner_updates && a.objective.group_size == b.objective.group_size &&
         a.objective.normalisation == b.objective.normalisation &&
         a.objective.max_completion_length == b.objective.max_completion_length;
}

}  // namespace

std::vector<RunSpan> run_spans(const Recipe& recipe) {
  std::vector<RunSpan> all;
  ReadSoFar read;
  for (PhaseSpan& phase : phase_spans(recipe)) {
    RunSpan span{std::move(phase)};
    span.longest = span.recipe.train.seq_length;
    if (!all.empty()) {
      const RunSpan& before = all.back();
      const int64_t of_mix = before.first_sample + before.samples_at(before.end_step) - before.samples;
      span.samples = before.samples_at(before.end_step);
      span.longest = std::max(span.longest, before.longest);
      span.mix = before.mix;
      span.first_sample = of_mix;
      span.begun = before.begun;
      if (!same_mix(before.recipe, span.recipe)) {
        read.add(before.recipe, of_mix);
        ++span.mix;
        span.first_sample = 0;
        span.begun = read.begun(span.recipe);
      }
    }
    all.push_back(std::move(span));
  }
  return all;
}

int64_t samples_of_mix(const Recipe& recipe, int64_t mix) {
  int64_t samples = 0;
  for (const RunSpan& span : run_spans(recipe))
    if (span.mix == mix) samples += span.samples_at(span.end_step) - span.samples;
  return samples;
}

size_t span_of(const std::vector<RunSpan>& spans, int64_t step) {
  const auto at = std::find_if(spans.begin(), spans.end(), [&](const RunSpan& span) { return step < span.end_step; });
  return at == spans.end() ? spans.size() - 1 : size_t(at - spans.begin());
}

}  // namespace weft
