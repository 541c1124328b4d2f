#include "weft/data/id_rows.h"

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
  if (list.empty()) throw FileError(fmt::format("{}: is empty; it needs at least one token", row.where(field)));
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

}  // namespace

IdRows::IdRows(const Spec& spec)
    : file_(spec.file), parts_(1 + int64_t(spec.completions.size())), token_numbers_(spec.token_numbers.size()) {
  const MappedFile file(spec.file);
  fingerprint_ = to_hex(hash128(file.text()));
  for_each_row({.text = file.text(), .source = spec.file.string()}, [&](const JsonlRow& row) {
    const JsonFields fields(row.json, row.where);
    lines_.push_back(row.line);
    add_tokens(fields, spec);
    if (!spec.number.empty())
      numbers_.push_back(spec.number_is_flag ? double(fields.flag(spec.number)) : number_of(fields, spec.number));
    if (!spec.token_numbers.empty()) add_token_numbers(fields, spec);
  });
  file.check_whole();
  if (ends_.empty()) throw FileError(fmt::format("{}: has no rows", spec.file.string()));
}

void IdRows::add_tokens(const JsonFields& row, const Spec& spec) {
  const size_t begin = ids_.size();
  read_ids(row, "prompt", spec.vocab_size, ids_);
  const size_t prompt = ids_.size() - begin;
  ends_.push_back(int64_t(ids_.size()));
  for (const std::string& field : spec.completions) {
    const size_t before = ids_.size();
    read_ids(row, field, spec.vocab_size, ids_);
    ends_.push_back(int64_t(ids_.size()));
    if (spec.most_tokens > 0 && int64_t(ids_.size() - before) > spec.most_tokens)
      throw FileError(fmt::format(
          "{}: has {} tokens, more than objective.max_completion_length = {}; raise that, or leave the row out",
          row.where(field), ids_.size() - before, spec.most_tokens));
    const size_t tokens = prompt + ids_.size() - before;
    if (int64_t(tokens) > spec.seq_length)
      throw FileError(fmt::format(
          "{}: with its prompt {} tokens, more than train.seq_length = {}; raise that, or leave the row out",
          row.where(field), tokens, spec.seq_length));
  }
}

void IdRows::add_token_numbers(const JsonFields& row, const Spec& spec) {
  for (size_t i = 0; i < token_numbers_.size(); ++i) add_token_numbers(row, spec, i);
  token_ends_.push_back(int64_t(token_numbers_[0].size()));
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
