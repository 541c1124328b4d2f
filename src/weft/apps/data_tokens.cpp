// weft data encode, weft data decode.
#include <iostream>
#include <string>

#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/base/threads.h"
#include "weft/pipeline/byte_reader.h"
#include "weft/pipeline/file_texts.h"
#include "weft/pipeline/row_reader.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

constexpr JsonLimits kLine{.max_bytes = size_t{1} << 30, .max_depth = 4};

void frame(const Tokenizer& tokenizer, Ids& ids) {
  const Ids before = tokenizer.beginning(), after = tokenizer.ending();
  ids.insert(ids.begin(), before.begin(), before.end());
  ids.insert(ids.end(), after.begin(), after.end());
}

// Calls take(value, "standard input: line 3") for each line.
template <class F>
void for_each_value(const F& take) {
  for_each_line(
      [&](const std::string& line, const std::string& where) { take(parse_json(line, where, kLine), where); });
}

Ids ids_of(const nlohmann::json& value, const std::string& where, int64_t vocab_size) {
  const auto fail = [&](const nlohmann::json& what) {
    throw FileError(fmt::format("{}: expected a list of ids from 0 to {}, got {}", where, vocab_size - 1, shown(what)));
  };
  if (!value.is_array()) fail(value);
  Ids ids;
  for (const auto& id : value) {
    if (!id.is_number_integer() || id < 0 || id >= vocab_size) fail(id);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::unique_ptr<Tokenizer> tokenizer_of(const TokenizerFileOptions& o) {
  if (o.tokenizer == "byte" && !o.pattern.empty())
    throw ConfigError("--pattern has no effect with --tokenizer byte, which splits nothing; leave it out");
  return read_tokenizer(o.tokenizer, {.pattern = o.pattern});
}

// Ids of other bytes would look like those of a text.
void refuse_binary(const std::string& file, std::string_view bytes) {
  if (bytes.starts_with("PAR1\x15"))
    throw FileError(file + ": is Parquet: --text-key names the column that is encoded, row by row");
  if (const std::string why = why_not_read(bytes); !why.empty()) throw FileError(file + ": " + why);
}

void judge(const EncodeOptions& o) {
  if (o.threads != 0 && o.file.empty()) throw ConfigError("--threads has no effect without --file; leave it out");
  if (o.text_key.empty()) return;
  if (o.file.empty()) throw ConfigError("--text-key has no effect without --file; leave it out");
  if (!has_row_texts(o.file))
    throw ConfigError(o.file + ": --text-key is for files of rows, .jsonl, .json, .ndjson and .parquet; leave it out");
  if (o.threads != 0) throw ConfigError("--threads has no effect with --text-key; leave it out");
}

}  // namespace

int run_data_encode(const EncodeOptions& o) {
  judge(o);
  const auto tokenizer = tokenizer_of(o);
  const SpecialText special = o.parse_special ? SpecialText::kParsed : SpecialText::kText;
  const auto print = [&](Ids& ids) {
    if (o.add_special) frame(*tokenizer, ids);
    if (o.count || (!o.file.empty() && o.text_key.empty())) std::cout << ids.size() << "\n";
    if (!o.count) std::cout << as_list<int32_t>(ids) << "\n";
  };
  Ids ids;
  if (!o.text_key.empty()) {
    for_each_row_text(o.file, o.text_key, [&](std::string_view text, double) {
      ids.clear();
      tokenizer->encode(text, ids, special);
      print(ids);
    });
    return kExitOk;
  }
  if (!o.file.empty()) {
    const MappedFile file(o.file);
    const bool plain = compression_of(file.text()) == Compression::kNone;
    const std::string whole = plain ? "" : whole_text(o.file);
    const std::string_view text = plain ? file.text() : std::string_view(whole);
    refuse_binary(o.file, text);
    tokenizer->encode(text, ids, special, o.threads > 0 ? o.threads : usable_cores());
    print(ids);
    return kExitOk;
  }
  for_each_value([&](const nlohmann::json& text, const std::string& where) {
    if (!text.is_string()) throw FileError(fmt::format("{}: expected a JSON string, got {}", where, shown(text)));
    ids.clear();
    tokenizer->encode(text.get_ref<const std::string&>(), ids, special);
    print(ids);
  });
  return kExitOk;
}

int run_data_decode(const DecodeOptions& o) {
  const auto tokenizer = tokenizer_of(o);
  const auto specials = o.skip_special ? Tokenizer::Specials::kHidden : Tokenizer::Specials::kShown;
  for_each_value([&](const nlohmann::json& value, const std::string& where) {
    const std::string text = tokenizer->decode(ids_of(value, where, tokenizer->vocab_size()), specials);
    std::string copy;
    std::cout << nlohmann::json(well_formed(text, copy)).dump() << "\n";
  });
  return kExitOk;
}

}  // namespace weft
