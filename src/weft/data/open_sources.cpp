#include "weft/data/open_sources.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/threads.h"
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
                      .more = spec.more,
                      .progress = {}};
  if (spec.progress) request.progress = [&](double done) { spec.progress(path, done); };
  if (spec.may_tokenize) return open_megatron_tokens(tokenize_once(request), spec.vocab_size);
  const auto tokenized = find_tokenized(request);
  if (!tokenized) throw FileError(path + ": is not tokenized yet, which its training begins with");
  return open_megatron_tokens(*tokenized, spec.vocab_size);
}

std::unique_ptr<TokenSource> open_tokens(const std::string& path, const DataSpec& spec) {
  if (is_megatron(path)) return open_megatron_tokens(path, spec.vocab_size);
  require_file(path);
  if (fs::path(path).extension() == ".bin") return open_raw_tokens(path, spec.dtype, spec.vocab_size);
  return open_text(path, spec);
}

// The mask that the recipe names, else the one beside a pair, else none.
std::unique_ptr<LossMask> open_mask(const std::string& path, const TokenSource& tokens, const DataSpec& spec) {
  if (!spec.loss_mask.empty()) return open_loss_mask(spec.loss_mask, tokens);
  if (!is_megatron(path)) return nullptr;
  const fs::path beside = fs::path(tokens.path()).replace_extension(".mask");
  std::error_code ignored;
  return fs::exists(beside, ignored) ? open_loss_mask(beside, tokens) : nullptr;
}

int64_t held_out(int64_t samples, double fraction) {
  if (fraction <= 0 || samples == 0) return 0;
  return std::clamp<int64_t>(int64_t(std::floor(double(samples) * fraction)), 1, samples);
}

OpenSource open_source(const std::string& path, const DataSpec& spec) {
  OpenSource s;
  s.tokens = open_tokens(path, spec);
  s.mask = open_mask(path, *s.tokens, spec);
  s.documents_apart = spec.documents_apart;
  s.packing = std::make_unique<Packing>(*s.tokens, Packing::Spec{spec.packing, spec.documents_apart, spec.seq_length});
  const int64_t samples = s.packing->num_samples();
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
  const auto& files = spec.files_of_source;
  WEFT_CHECK(files.empty() || (*std::min_element(files.begin(), files.end()) > 0 &&
                               std::accumulate(files.begin(), files.end(), int64_t{0}) == int64_t(spec.paths.size())),
             "{} sources for {} files", files.size(), spec.paths.size());
  if (const size_t n = files.empty() ? spec.paths.size() : files.size();
      !spec.weights.empty() && spec.weights.size() != n)
    throw ConfigError(
        fmt::format("data.weights has {} shares for {} sources; give one for each, or none", spec.weights.size(), n));
  if (!spec.loss_mask.empty() && spec.paths.size() != 1)
    throw ConfigError(fmt::format("data.loss_mask belongs to one token file, but there are {}", spec.paths.size()));
}

// All that counts of a document weighs 1 together.
void weigh_alike(std::span<const uint8_t> counted, std::span<double> weights) {
  const auto n = std::count(counted.begin(), counted.end(), uint8_t(1));
  std::transform(counted.begin(), counted.end(), weights.begin(),
                 [n](uint8_t c) { return c != 0 ? 1 / double(n) : 0; });
}

}  // namespace

void OpenSource::read(int64_t sample, const SampleRows& to) const {
  size_t filled = 0;
  for (const Packing::Segment& p : packing->segments(sample)) {
    const size_t row = size_t(p.row), size = size_t(p.size);
    tokens->read(p.begin, to.ids.subspan(row, size));
    const size_t follow = size_t(std::min(p.size, tokens->size() - 1 - p.begin));  // the last of a source has no target
    tokens->read(p.begin + 1, to.targets.subspan(row, follow));
    std::fill_n(to.targets.begin() + std::ptrdiff_t(row + follow), size - follow, 0);
    read_counted(p, to.counted.subspan(row, size));
    if (!to.weights.empty()) weigh_alike(to.counted.subspan(row, size), to.weights.subspan(row, size));
    if (!to.further_counted.empty()) {
      const auto after = to.counted.subspan(row + 1, size - 1);
      std::copy(after.begin(), after.end(), to.further_counted.begin() + p.row);
      to.further_counted[row + size - 1] = 0;
    }
    if (documents_apart) std::iota(&to.positions[row], &to.positions[row] + size, 0);
    filled = row + size;
  }
  const auto rest = std::ptrdiff_t(filled);
  std::fill(to.ids.begin() + rest, to.ids.end(), 0);
  std::fill(to.targets.begin() + rest, to.targets.end(), 0);
  std::fill(to.counted.begin() + rest, to.counted.end(), uint8_t(0));
  if (!to.further_counted.empty()) std::fill(to.further_counted.begin() + rest, to.further_counted.end(), uint8_t(0));
  if (!to.weights.empty()) std::fill(to.weights.begin() + rest, to.weights.end(), 0);
  std::iota(to.positions.begin() + (documents_apart ? rest : 0), to.positions.end(), 0);
}

void OpenSource::read_counted(const Packing::Segment& segment, std::span<uint8_t> counted) const {
  if (mask)
    mask->read(segment.begin, counted);
  else
    std::fill(counted.begin(), counted.end(), uint8_t(1));
  if (drops_last(segment)) counted.back() = 0;
}

// The last token of a document would be asked for the first of the next one.
bool OpenSource::drops_last(const Packing::Segment& segment) const {
  return segment.ends_document && packing->cuts_at_documents();
}

// Walked for a whole global batch on each rank and step: without a mask nothing is read.
OpenSource::Counted OpenSource::counted(int64_t sample) const {
  Counted n;
  for (const Packing::Segment& p : packing->segments(sample)) {
    const Packing::Segment first{.begin = p.begin, .size = 1, .ends_document = p.size == 1 && p.ends_document};
    const int64_t all = counted_in(p);
    n.targets += all;
    n.further += all - counted_in(first);
    n.documents += all > 0;
  }
  return n;
}

int64_t OpenSource::counted_in(const Packing::Segment& p) const {
  if (!mask) return p.size - drops_last(p);
  int64_t n = 0;
  std::array<uint8_t, 4096> piece;
  for (int64_t at = 0; at < p.size; at += int64_t(piece.size())) {
    const std::span<uint8_t> here(piece.data(), size_t(std::min<int64_t>(int64_t(piece.size()), p.size - at)));
    mask->read(p.begin + at, here);
    if (drops_last(p) && at + int64_t(here.size()) == p.size) here.back() = 0;
    n += std::count(here.begin(), here.end(), uint8_t(1));
  }
  return n;
}

std::string OpenSource::contents() const { return tokens->fingerprint() + (mask ? " " + mask->fingerprint() : ""); }

void require_sources(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (!is_megatron(path)) require_file(path);
}

std::vector<OpenSource> open_sources(const DataSpec& spec) {
  judge(spec);
  std::vector<OpenSource> sources;
  for (const std::string& path : spec.paths) sources.push_back(open_source(path, spec));
  return sources;
}

void check_lengths(const SampleRows& r, int64_t seq_length) {
  const size_t further = r.further_counted.empty() ? r.ids.size() : r.further_counted.size();
  const size_t weights = r.weights.empty() ? r.ids.size() : r.weights.size();
  for (size_t size : {r.ids.size(), r.targets.size(), r.counted.size(), r.positions.size(), further, weights})
    WEFT_CHECK(int64_t(size) == seq_length, "rows of {} for samples of {}", size, seq_length);
}

std::vector<size_t> ends_of_sources(const DataSpec& spec) {
  std::vector<size_t> ends;
  for (size_t i = 0, at = 0; at < spec.paths.size(); ++i)
    ends.push_back(at += spec.files_of_source.empty() ? 1 : size_t(spec.files_of_source[i]));
  return ends;
}

void require_samples(const std::vector<OpenSource>& sources, const DataSpec& spec) {
  const bool valid = spec.part == DataSpec::Part::valid;
  const std::vector<size_t> ends = ends_of_sources(spec);
  for (size_t s = 0, i = 0; s < ends.size(); ++s) {
    const size_t end = ends[s], first = std::exchange(i, end);
    if (!spec.weights.empty() && spec.weights[s] == 0) continue;  // none of its samples is ever drawn
    const auto has_samples = [](const OpenSource& s) { return s.num_samples > 0; };
    if (std::any_of(&sources[first], &sources[first] + (end - first), has_samples)) continue;
    const int64_t tokens = sources[first].tokens->size();
    if (spec.packing == PackingKind::first_fit)
      throw FileError(
          fmt::format("{}: its documents fill {} samples of {}, which leaves none for {}; use more text, or "
                      "another data.valid_fraction",
                      spec.paths[first], sources[first].packing->num_samples(), spec.seq_length,
                      valid ? "validation" : "training"));
    throw FileError(fmt::format(
        "{}: {} tokens give no {} sample of {} and its next token{}; use more text, or a shorter train.seq_length",
        spec.paths[first], tokens, valid ? "validation" : "training", spec.seq_length,
        !valid && tokens > spec.seq_length ? " beside those held out" : ""));
  }
}

}  // namespace weft
