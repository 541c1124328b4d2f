#include "weft/tokenize/rank_file.h"

#include <algorithm>
#include <charconv>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/utf8.h"
#include "weft/tokenize/bpe.h"
#include "weft/tokenize/pipeline.h"

namespace weft {
namespace {

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::string from_base64(std::string_view text, const std::string& source) {
  const std::string_view whole = text;
  while (text.ends_with('=') && whole.size() - text.size() < 2) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const int digit = digit_of(c);
    if (digit < 0 || whole.size() % 4 != 0)
      throw FileError(fmt::format("{}: {} is not base64", source, in_quotes(whole)));
    bits = bits << 6 | uint32_t(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += char(bits >> count & 0xff);
  }
  return bytes;
}

void for_each_text_line(std::string_view text, const std::string& source,
                        const std::function<void(std::string_view line, int64_t number)>& take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (utf8_error(line) != std::string_view::npos)
      throw FileError(fmt::format("{}: line {}: not UTF-8 text", source, number));
    take(line, number);
  }
}

namespace {

constexpr size_t kLongestToken = 1024;  // bytes; of the known files, 128

// Rank files that are known: by the number of their ranks.
struct Known {
  const char *pattern, *name;  // a part of the file's name
  int64_t ranks;
};
constexpr Known kKnownRanks[] = {{"r50k", "r50k", 50256},       {"r50k", "gpt2", 50256},
                                 {"r50k", "p50k", 50280},       {"cl100k", "cl100k", 100256},
                                 {"o200k", "o200k", 199998},    {"llama3", "llama3", 128000},
                                 {"llama3", "llama-3", 128000}, {"qwen2", "qwen", 151643}};

Vocabulary read_ranks(const RankFile& file) {
  const size_t lines = size_t(std::count(file.content.begin(), file.content.end(), '\n')) + 1;
  Vocabulary ranks(file.source);
  for_each_text_line(file.content, file.source, [&](std::string_view row, int64_t line) {
    if (row.empty()) return;
    const std::string where = fmt::format("{}: line {}", file.source, line);
    const size_t space = row.find(' ');
    int64_t rank = -1;
    const char* row_end = row.data() + row.size();
    const char* number = row.data() + std::min(space, row.size() - 1) + 1;
    const auto [at, error] = std::from_chars(number, row_end, rank);
    if (space == std::string_view::npos || error != std::errc() || at != row_end || rank < 0)
      throw FileError(fmt::format("{}: expected base64, a space and a rank, got {}", where, in_quotes(row)));
    const std::string token = from_base64(row.substr(0, space), where);
    if (token.empty() || token.size() > kLongestToken)
      throw FileError(fmt::format("{}: a token of {} bytes; there may be 1 to {}", where, token.size(), kLongestToken));
    ranks.add(token, rank, lines);
  });
  for (int b = 0; b < 256; ++b)
    if (ranks.find(std::string(1, char(b))) < 0)
      throw FileError(fmt::format("{}: the byte 0x{:02x} has no token: is the file cut short?", file.source, b));
  return ranks;
}

// Two neighbours merge wherever their bytes together are a token, at its rank: each way to cut a token is a pair.
MergeTable merges_of(const Vocabulary& ranks) {
  MergeTable table(size_t(ranks.num_tokens()) * 2);
  for (int32_t id = 0; id < ranks.size(); ++id) {
    if (!ranks.has(id)) continue;
    const std::string_view token = ranks.token(id);
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const int32_t left = ranks.find(token.substr(0, cut)), right = left < 0 ? -1 : ranks.find(token.substr(cut));
      if (right >= 0) table.add(left, right, {.rank = uint32_t(id), .result = id});
    }
  }
  return table;
}

std::string pattern_of(const RankFile& file, int64_t ranks) {
  if (!file.pattern.empty()) return file.pattern;
  const std::string name = lower_ascii(file.name);
  for (const Known& known : kKnownRanks)
    if (name.find(known.name) != std::string::npos) return known.pattern;
  for (const Known& known : kKnownRanks)
    if (ranks == known.ranks) return known.pattern;
  throw ConfigError(fmt::format(
      "{}: a file of {} ranks does not say how text is split, and neither its name nor that number is known; say "
      "--pattern r50k, cl100k, o200k, llama3 or qwen2 (in a recipe: put the pattern into the file's name)",
      file.source, ranks));
}

// The special tokens that belong to a known file.
std::vector<AddedToken> known_specials(int64_t ranks) {
  std::vector<AddedToken> out;
  const auto add = [&](int64_t id, std::string content) {
    out.push_back({.id = int32_t(id), .content = std::move(content), .special = true});
  };
  if (ranks == 50256 || ranks == 50280) add(50256, "<|endoftext|>");
  if (ranks == 100256) {
    const char* names[] = {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"};
    for (int i = 0; i < 4; ++i) add(100257 + i, names[i]);
    add(100276, "<|endofprompt|>");
  }
  if (ranks == 199998) {
    add(199999, "<|endoftext|>");
    add(200018, "<|endofprompt|>");
  }
  if (ranks == 151643) {
    const char* names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    for (int i = 0; i < 3; ++i) add(151643 + i, names[i]);
  }
  if (ranks == 128000) {
    const std::pair<int, const char*> names[] = {
        {0, "begin_of_text"}, {1, "end_of_text"}, {6, "start_header_id"}, {7, "end_header_id"}, {9, "eot_id"}};
    for (int i = 0, reserved = 0; i < 256; ++i) {
      const auto at = std::find_if(std::begin(names), std::end(names), [&](const auto& n) { return n.first == i; });
      const bool named = at != std::end(names);
      add(ranks + i,
          named ? fmt::format("<|{}|>", at->second) : fmt::format("<|reserved_special_token_{}|>", reserved));
      reserved += named ? 0 : 1;
    }
  }
  return out;
}

}  // namespace

bool is_rank_file(std::string_view content) {
  const std::string_view line = content.substr(0, std::min(content.find('\n'), content.size()));
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 >= line.size()) return false;
  const bool digits = line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos;
  return digits && space % 4 == 0 &&
         line.substr(0, space).find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") ==
             std::string_view::npos;
}

std::unique_ptr<Tokenizer> read_rank_file(const RankFile& file, const Companions& companions) {
  Vocabulary ranks = read_ranks(file);
  const std::string pattern = pattern_of(file, ranks.num_tokens());
  const auto rules = Splitter::rules_named(pattern);
  if (!rules)
    throw ConfigError(fmt::format("pattern \"{}\": there are r50k, cl100k, o200k, llama3 and qwen2", pattern));
  PipelineTokenizer::Parts parts;
  parts.table = file.table;
  parts.added = companions.added.empty() ? known_specials(ranks.num_tokens()) : companions.added;
  for (const AddedToken& t : parts.added)
    if (ranks.has(t.id) && ranks.token(t.id) != t.content)
      throw FileError(fmt::format("{}: the id {} is a rank, and the special token {} too", file.source, t.id,
                                  in_quotes(t.content)));
  if (pattern.starts_with("qwen")) {
    parts.normalizers.push_back(
        [table = parts.table](std::string text, PatternSpace&) { return normalize(*table, NormalForm::kNfc, text); });
    parts.only_nfc = true;
  }
  parts.pre_tokenizers.splitter.emplace(*rules, parts.table);
  parts.end_of_document = end_of_document(companions, parts.added);
  for (const AddedToken& t : parts.added)
    if (t.content == "<|begin_of_text|>") parts.beginning = {t.id};
  parts.decoders.only_bytes = true;
  parts.fingerprint = fmt::format("{}-{}-{}", file.fingerprint, pattern, parts.end_of_document);
  MergeTable merges = merges_of(ranks);
  Bpe::Spec spec{.vocabulary = std::move(ranks), .merges = std::move(merges), .later_prefix = "", .last_suffix = ""};
  spec.bytes = spec.whole_first = true;
  parts.model = std::make_unique<Bpe>(std::move(spec));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace weft
