// weft data train-tokenizer.
#include <filesystem>
#include <iostream>

#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/base/not_built.h"
#include "weft/base/threads.h"
#include "weft/pipeline/byte_reader.h"
#include "weft/pipeline/document_reader.h"
#include "weft/pipeline/file_texts.h"
#include "weft/pipeline/input_files.h"
#include "weft/pipeline/row_reader.h"
#include "weft/tokenize/train_bpe.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Counts the documents that a pipeline would read from a file with rows or pages. Returns the number of broken rows.
// Throws FileError if the file cannot be read to its end.
int64_t count_documents(const SourceConfig& source, SourceFile file, int threads, PieceCounts& counts) {
  const auto rows = open_documents(source, file, nullptr, {});
  DocumentReader reader(source);
  int64_t broken = 0;
  for (Row row; rows->next(row);) {
    Document d;
    std::string why = row.broken;
    try {
      if (why.empty() && reader.read(file, row, d).empty()) counts.add(d.text, threads);
      if (row.broken.empty()) continue;
    } catch (const NotBuilt&) { throw; } catch (const Error& e) {
      why = e.what();
    }
    if (++broken == 1)
      std::cerr << fmt::format("{}: row {} at byte {}: {}; left out\n", file.path, row.number, row.begin, why);
  }
  if (!rows->failure().empty()) throw FileError(fmt::format("{}: {}", file.path, rows->failure()));
  return broken;
}

void count_file(const SourceConfig& source, const fs::path& path, int threads, PieceCounts& counts) {
  const SourceFile as_source{.path = path.string(), .format = format_of(source, path.string()), .columns = {}};
  if (as_source.format != FileFormat::kText) {
    const int64_t broken = count_documents(source, as_source, threads, counts);
    if (broken > 1) std::cerr << fmt::format("{}: {} broken rows left out\n", path.string(), broken);
    return;
  }
  const MappedFile file(path);
  const bool plain = compression_of(file.text()) == Compression::kNone;
  counts.add(plain ? file.text() : std::string_view(whole_text(path)), threads);
}

// Those of the files and folders that can be read, by name. Others are named and left out, unless they are given by
// their own names: these throw, where they cannot be opened, are of a kind that is not read, or are CSV without the
// text's column.
std::vector<std::string> readable_files(const SourceConfig& source) {
  std::vector<std::string> files;
  for (const InputFile& input : input_files({source})) {
    try {
      if (!input.unreadable.empty()) throw UnreadFile(input.path, input.unreadable);
      SourceFile file{.path = input.path, .format = format_of(source, input.path), .columns = {}};
      open_documents(source, file, nullptr, {});
      files.push_back(input.path);
    } catch (const UnreadFile& e) {
      if (std::count(source.files.begin(), source.files.end(), input.path) > 0) throw;
      std::cerr << e.what() << "; left out\n";
    }
  }
  if (files.empty()) throw FileError(fmt::format("{}: there is no file in it that can be read", source.files.at(0)));
  return files;
}

}  // namespace

int run_data_train_tokenizer(const TrainTokenizerOptions& o) {
  const auto rules = Splitter::rules_named(o.pattern);
  if (!rules)
    throw ConfigError(fmt::format("pattern \"{}\": there are r50k, cl100k, o200k, llama3 and qwen2", o.pattern));
  for (size_t i = 0; i < o.specials.size(); ++i) {
    const bool again = std::count(o.specials.begin(), o.specials.end(), o.specials[i]) > 1;
    if (o.specials[i].empty() || again)
      throw ConfigError(fmt::format("--special \"{}\": {}", o.specials[i], again ? "is given twice" : "is empty"));
  }
  const int64_t before = 256 + int64_t(o.specials.size());
  if (o.vocab_size < before)
    throw ConfigError(fmt::format("--vocab-size {}: the bytes and special tokens alone are {}", o.vocab_size, before));
  SourceConfig source;
  source.files = o.files;
  source.text_key = o.text_key;
  const std::vector<std::string> files = readable_files(source);
  fs::path out = o.out;
  if (fs::is_directory(out) || out.extension() != ".json") out /= "tokenizer.json";
  prepare_output("--out", out, o.again);
  PieceCounts counts(*rules, o.specials);
  for (const std::string& file : files) {
    count_file(source, file, o.threads > 0 ? o.threads : usable_cores(), counts);
    std::cerr << fmt::format("{}: {:.1f} MB so far, {} different pieces\n", file, double(counts.bytes()) / 1e6,
                             counts.counts().size());
  }
  if (counts.counts().empty()) throw FileError(fmt::format("{}: there is no text to learn from", o.files.at(0)));
  const int64_t wanted = o.vocab_size - before;
  const LearnedMerges learned =
      learn_merges(counts, wanted, [&](int64_t done) { std::cerr << fmt::format("{} of {} merges\n", done, wanted); });
  write_file_durably(out, learned_tokenizer(learned, *rules, o.specials).dump(1) + "\n", kOwnName);
  std::cout << fmt::format("{}: {} merges of {} wanted, from {:.1f} MB\n", out.string(), learned.merges.size(), wanted,
                           double(counts.bytes()) / 1e6);
  for (size_t i = 0; i < o.specials.size(); ++i)
    std::cout << fmt::format("special token {}: {}\n", i, in_quotes(o.specials[i]));
  return kExitOk;
}

}  // namespace weft
