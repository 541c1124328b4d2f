#include "weft/train/data_files.h"

#include <filesystem>
#include <optional>

#include "weft/base/error.h"
#include "weft/data/token_source.h"
#include "weft/pipeline/dataset_files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// What an entry of data.train or data.valid stands for.
std::vector<DatasetSource> sources_of(const std::string& entry, DatasetPart part) {
  std::error_code ignored;
  if (!is_megatron(entry) && fs::is_directory(entry, ignored)) return dataset_sources(entry, part);
  return {{.name = "", .weight = {}, .files = {entry}}};
}

// `sources` of one entry, all with weights or none; together they get `share`, or as they say without one.
void add(const std::vector<DatasetSource>& sources, std::optional<double> share, DataFiles& all) {
  double sum = 0;
  for (const DatasetSource& s : sources) sum += s.weight.value_or(1);
  for (const DatasetSource& s : sources) {
    all.paths.insert(all.paths.end(), s.files.begin(), s.files.end());
    all.files_of_source.push_back(int64_t(s.files.size()));
    if (!share && !s.weight) continue;
    const double weight = s.weight.value_or(1);
    all.weights.push_back(share ? (sum > 0 ? *share * (weight / sum) : 0) : weight);
  }
}

std::vector<std::string> normal(std::vector<std::string> paths) {
  for (std::string& path : paths) {
    fs::path p = fs::absolute(path).lexically_normal();
    if (is_megatron(path) && (p.extension() == ".bin" || p.extension() == ".idx")) p.replace_extension();
    path = p.string();
  }
  return paths;
}
// Where all sources are walked as one, it does not matter which file is of which.
DataFiles normal(DataFiles files) {
  files.paths = normal(std::move(files.paths));
  if (files.weights.empty()) files.files_of_source.clear();
  return files;
}

}  // namespace

DataFiles training_files_of(const Recipe& r) {
  const std::vector<std::string>& entries = r.data.train;
  const std::vector<double>& shares = r.data.weights;
  if (!shares.empty() && shares.size() != entries.size())
    throw ConfigError(fmt::format("data.weights has {} shares for {} entries of data.train; give one for each, or none",
                                  shares.size(), entries.size()));
  DataFiles all;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::vector<DatasetSource> sources = sources_of(entries[i], DatasetPart::train);
    if (sources[0].weight && shares.empty() && entries.size() > 1)
      throw ConfigError(fmt::format(
          "data.train: the sources of dataset {} have weights, which say nothing of the other entries; give "
          "data.weights with one number for each of the {} entries",
          entries[i], entries.size()));
    add(sources, shares.empty() ? std::nullopt : std::optional(shares[i]), all);
  }
  return all;
}

DataFiles validation_files_of(const std::vector<std::string>& entries) {
  DataFiles all;
  for (const std::string& entry : entries) {
    std::vector<DatasetSource> sources = sources_of(entry, DatasetPart::valid);
    for (DatasetSource& s : sources) s.weight.reset();  // all that is held out is measured
    add(sources, {}, all);
  }
  return all;
}

bool have_the_same_files(const Recipe& a, const Recipe& b) {
  try {
    return normal(training_files_of(a)) == normal(training_files_of(b)) &&
           normal(validation_files_of(a.data.valid)) == normal(validation_files_of(b.data.valid));
  } catch (const Error&) { return false; }
}

}  // namespace weft
