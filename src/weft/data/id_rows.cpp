#include "weft/data/id_rows.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/data/jsonl.h"

namespace weft {
namespace {

// Appends the ids of a field of a row.
void read_ids(const JsonFields& row, const std::string& field, int64_t vocab_size, std::vector<int32_t>& ids) {
  const nlohmann::json& list = row.list(field, "a list of token ids");
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer())
      throw FileError(fmt::format("{}: {} is no token id; weft reads ids here, made by the model's tokenizer",
                                  row.where(field), shown(id)));
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < uint64_t(vocab_size);
    if (!fits)
      throw FileError(
          fmt::format("{}: {} is not in the vocabulary of {} tokens; were the ids made by another model's tokenizer?",
                      row.where(field), id.dump(), vocab_size));
    ids.push_back(id.get<int32_t>());
  }
}

// Ratios of probabilities are numbers; a little above 0 is rounding.
constexpr double kLeastLogp = -600, kMostLogp = 1;

constexpr double kLargestNumber = 1e15;  // whose squares are numbers too

double number_of(const JsonFields& row, const std::string& field) {
  return row.number(field, {.min = -kLargestNumber, .max = kLargestNumber});
}

std::vector<std::string> parts_of(const IdRows::Spec& spec) {
  std::vector<std::string> parts{"prompt"};
  parts.insert(parts.end(), spec.completions.begin(), spec.completions.end());
  return parts;
}

// Does the row have a list that is not of messages.
bool has_ids(const JsonFields& row, const IdRows::Spec& spec) {
  const std::vector<std::string> parts = parts_of(spec);
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& field) {
    const nlohmann::json* found = row.find(field);
    return found != nullptr && found->is_array() && !found->front().is_object();
  });
}

// An empty list is neither ids nor messages.
void refuse_empty(const JsonFields& row, const IdRows::Spec& spec) {
  for (const std::string& field : parts_of(spec))
    if (const nlohmann::json* found = row.find(field); found != nullptr && found->is_array() && found->empty())
      throw EmptyPartError(fmt::format("{}: is empty; it needs at least one token", row.where(field)));
}

template <class T>
std::string_view bytes_of(const std::vector<T>& all) {
  return {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(T)};
}

}  // namespace

IdRows::IdRows(const Spec& spec)
    : file_(spec.file), parts_(1 + int64_t(spec.completions.size())), token_numbers_(spec.token_numbers.size()) {
  const MappedFile file(spec.file);
  fingerprint_ = to_hex(hash128(file.text()));
  are_lines_ = !spec.files.reads || !spec.files.reads(spec.file);
  int64_t empty = 0;
  std::string first_empty;
  const auto take = [&](const JsonlRow& row) {
    try {
      add(row, spec);
    } catch (const EmptyPartError& e) {
      if (++empty == 1) first_empty = e.what();
    }
  };
  if (are_lines_)
    for_each_row({.text = file.text(), .source = spec.file.string()}, take);
  else
    spec.files.for_each(spec.file, take);
  file.check_whole();
  if (empty > 1) first_empty += fmt::format("; {} rows of the file are empty in some part", empty);
  if (empty > 0) throw FileError(first_empty);
  if (ends_.empty()) throw FileError(fmt::format("{}: has no rows", spec.file.string()));
  check_lengths(spec);
  if (are_texts_)
    fingerprint_ = to_hex(hash128(fingerprint_ + to_hex(hash128(bytes_of(ids_))) + to_hex(hash128(bytes_of(ends_)))));
}

void IdRows::add(const JsonlRow& row, const Spec& spec) {
  const JsonFields fields(row.json, row.where);
  refuse_empty(fields, spec);
  const bool texts = spec.files.encode && !has_ids(fields, spec);
  if (lines_.empty()) are_texts_ = texts;
  lines_.push_back(row.line);
  if (texts != are_texts_)
    throw FileError(
        fmt::format("{}: has {}, but {} has {}; put rows of token ids and rows of texts in files of their "
                    "own",
                    row.where, texts ? "texts" : "token ids", place_of(0), are_texts_ ? "texts" : "token ids"));
  texts ? add_texts(row, spec) : add_ids(fields, spec);
  const bool other = !spec.other_number.empty() && !fields.has(spec.number) && fields.has(spec.other_number);
  const std::string& number = other ? spec.other_number : spec.number;
  if (!number.empty())
    numbers_.push_back(spec.number_is_flag ? double(fields.flag(number)) : number_of(fields, number));
  if (!spec.token_numbers.empty()) add_token_numbers(fields, spec);
}

void IdRows::add_ids(const JsonFields& row, const Spec& spec) {
  for (const std::string& field : parts_of(spec)) {
    read_ids(row, field, spec.vocab_size, ids_);
    ends_.push_back(int64_t(ids_.size()));
  }
}

void IdRows::add_texts(const JsonlRow& row, const Spec& spec) {
  const EncodedRow encoded = spec.files.encode(row);
  WEFT_CHECK(encoded.completions.size() == spec.completions.size(), "{} completions", encoded.completions.size());
  const auto append = [&](const std::vector<int32_t>& ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ends_.push_back(int64_t(ids_.size()));
  };
  append(encoded.prompt);
  for (const std::vector<int32_t>& ids : encoded.completions) append(ids);
}

// Looks at all rows before it throws: the message helps to choose train.seq_length.
void IdRows::check_lengths(const Spec& spec) const {
  int64_t too_long = 0, longest = 0;
  std::string first;
  for (int64_t row = 0; row < size(); ++row)
    for (int64_t which = 0; which < num_completions(); ++which) {
      const auto alone = int64_t(completion(row, which).size()), tokens = int64_t(prompt(row).size()) + alone;
      const auto where = [&] {
        return fmt::format("{}: {}: {}", file_.string(), place_of(row), in_quotes(spec.completions[size_t(which)]));
      };
      if (spec.most_tokens > 0 && alone > spec.most_tokens)
        throw FileError(fmt::format(
            "{}: has {} tokens, more than objective.max_completion_length = {}; raise that, or leave the row out",
            where(), alone, spec.most_tokens));
      if (tokens <= spec.seq_length) continue;
      longest = std::max(longest, tokens);
      if (++too_long == 1)
        first = fmt::format(
            "{}: with its prompt {} tokens, more than train.seq_length = {}; raise that, or leave the row out", where(),
            tokens, spec.seq_length);
    }
  if (too_long > 1)
    first += fmt::format("; {} completions of the file are too long, with up to {} tokens", too_long, longest);
  if (too_long > 0) throw FileError(first);
}

void IdRows::add_token_numbers(const JsonFields& row, const Spec& spec) {
  for (size_t i = 0; i < token_numbers_.size(); ++i) add_token_numbers(row, spec, i);
  token_ends_.push_back(int64_t(token_numbers_[0].size()));
}

std::string IdRows::place_of(int64_t row) const {
  return fmt::format("{} {}", are_lines_ ? "line" : "row", lines_[size_t(row)]);
}

void IdRows::add_token_numbers(const JsonFields& row, const Spec& spec, size_t which) {
  const auto& [name, is_logp] = spec.token_numbers[which];
  const nlohmann::json& list = row.list(name, "a list of numbers");
  const size_t tokens = completion(size() - 1, 0).size();
  if (list.size() != tokens)
    throw FileError(fmt::format("{}: has {} numbers for the {} tokens of {}; it needs one for each", row.where(name),
                                list.size(), tokens, in_quotes(spec.completions[0])));
  for (const nlohmann::json& one : list) {
    if (!one.is_number()) throw FileError(fmt::format("{}: expected a number, got {}", row.where(name), shown(one)));
    const auto value = one.get<double>();
    if (is_logp && !(value >= kLeastLogp && value <= kMostLogp))
      throw FileError(fmt::format("{}: {} is no logarithm of a probability (from {} to 0)", row.where(name), shown(one),
                                  kLeastLogp));
    if (!(std::abs(value) <= kLargestNumber))
      throw FileError(fmt::format("{}: {} is beyond {:.0e}", row.where(name), shown(one), kLargestNumber));
    token_numbers_[which].push_back(value);
  }
}

std::span<const double> IdRows::token_numbers(int64_t row, size_t which) const {
  const auto begin = size_t(row == 0 ? 0 : token_ends_[size_t(row - 1)]), end = size_t(token_ends_[size_t(row)]);
  return std::span(token_numbers_[which]).subspan(begin, end - begin);
}

std::span<const int32_t> IdRows::part(int64_t row, int64_t which) const {
  WEFT_CHECK(row >= 0 && row < size(), "row {} of {}", row, size());
  const auto at = size_t(row * parts_ + which);
  const auto begin = size_t(at == 0 ? 0 : ends_[at - 1]), end = size_t(ends_[at]);
  return std::span(ids_).subspan(begin, end - begin);
}

}  // namespace weft
