#include "weft/data/open_sources.h"

#include <algorithm>
#include <cmath>

#include "weft/base/cores.h"
#include "weft/base/error.h"
#include "weft/data/text_tokens.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_absent(const std::string& path, std::error_code why) {
  if (path.empty()) throw FileError("data: a path is empty; name a token file, a text or a JSONL file");
  if (path.find_first_of("*?[") != std::string::npos)
    throw FileError(fmt::format("{}: no such file; patterns are not expanded here: list the files", path));
  if (fs::path(path).extension() == ".idx" && fs::exists(path, why))
    throw FileError(fmt::format("{}: its .bin file is missing", path));
  throw FileError(fmt::format("{}: {}", path, why ? why.message() : "no such file"));
}

// `path` is a file and no half of a pair.
void require_file(const std::string& path) {
  std::error_code why;
  const fs::file_status status = fs::status(path, why);
  if (fs::is_directory(status)) throw FileError(fmt::format("{}: is a folder; list the files in it", path));
  if (!fs::exists(status)) refuse_absent(path, status.type() == fs::file_type::not_found ? std::error_code() : why);
  if (fs::path(path).extension() == ".idx") refuse_absent(path, {});
}

std::unique_ptr<TokenSource> open_text(const std::string& path, const DataSpec& spec) {
  const auto tokenizer = open_tokenizer(spec.tokenizer, spec.model_folder, spec.vocab_size);
  TextRequest request{.text = path,
                      .tokenizer = *tokenizer,
                      .text_key = spec.text_key,
                      .cache_dir = spec.cache_dir,
                      .num_threads = usable_cores(),
                      .progress = {}};
  if (spec.progress) request.progress = [&](double done) { spec.progress(path, done); };
  const TextTokens ids = tokenize_once(request);
  return open_raw_tokens(ids.file, ids.dtype, spec.vocab_size);
}

std::unique_ptr<TokenSource> open_tokens(const std::string& path, const DataSpec& spec) {
  if (is_megatron(path)) return open_megatron_tokens(path, spec.vocab_size);
  require_file(path);
  if (fs::path(path).extension() == ".bin") return open_raw_tokens(path, spec.dtype, spec.vocab_size);
  return open_text(path, spec);
}

int64_t held_out(int64_t samples, double fraction) {
  if (fraction <= 0 || samples == 0) return 0;
  return std::clamp<int64_t>(int64_t(std::floor(double(samples) * fraction)), 1, samples);
}

OpenSource open_source(const std::string& path, const DataSpec& spec) {
  OpenSource s{.tokens = open_tokens(path, spec), .mask = nullptr};
  if (!spec.loss_mask.empty()) s.mask = open_loss_mask(spec.loss_mask, *s.tokens);
  const int64_t samples = std::max<int64_t>(s.tokens->size() - 1, 0) / spec.seq_length;
  const int64_t held = held_out(samples, spec.valid_fraction);
  const bool divided = spec.valid_fraction > 0, valid = spec.part == DataSpec::Part::valid;
  s.first_sample = divided && valid ? samples - held : 0;
  s.num_samples = divided && valid ? held : samples - held;
  return s;
}

void judge(const DataSpec& spec) {
  if (spec.paths.empty()) throw ConfigError("data: no file is named; data.train takes token files, text or JSONL");
  if (spec.seq_length < 1) throw ConfigError(fmt::format("train.seq_length is {}; at least 1", spec.seq_length));
  if (!(spec.valid_fraction >= 0 && spec.valid_fraction < 1))
    throw ConfigError(fmt::format("data.valid_fraction is {}; from 0 to below 1", spec.valid_fraction));
  if (!spec.weights.empty() && spec.weights.size() != spec.paths.size())
    throw ConfigError(fmt::format("data.weights has {} shares for {} sources; give one for each, or none",
                                  spec.weights.size(), spec.paths.size()));
  if (!spec.loss_mask.empty() && spec.paths.size() != 1)
    throw ConfigError(fmt::format("data.loss_mask belongs to one token file, but there are {}", spec.paths.size()));
}

}  // namespace

std::vector<OpenSource> open_sources(const DataSpec& spec) {
  judge(spec);
  std::vector<OpenSource> sources;
  for (const std::string& path : spec.paths) sources.push_back(open_source(path, spec));
  return sources;
}

void require_samples(const std::vector<OpenSource>& sources, const DataSpec& spec) {
  const bool valid = spec.part == DataSpec::Part::valid;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].num_samples > 0) continue;
    const int64_t tokens = sources[i].tokens->size();
    throw FileError(fmt::format(
        "{}: {} tokens give no {} sample of {} and its next token{}; use more text, or a shorter train.seq_length",
        spec.paths[i], tokens, valid ? "validation" : "training", spec.seq_length,
        !valid && tokens > spec.seq_length ? " beside those held out" : ""));
  }
}

}  // namespace weft
