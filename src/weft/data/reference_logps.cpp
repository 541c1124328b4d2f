#include "weft/data/reference_logps.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReferenceFormat = "weft reference log-probabilities 1";
constexpr const char* kRemove = "remove it, and the next run makes it again";

std::string header_of_reference(const ReferenceLogpsSpec& s) {
  std::string text = nlohmann::json{{"format", kReferenceFormat},
                                    {"key", s.key},
                                    {"tokens", s.tokens},
                                    {"dtype", s.value_bytes == 8 ? "f64" : "f32"}}
                         .dump();
  WEFT_CHECK(int64_t(text.size()) < ReferenceLogpsSpec::kHeaderBytes, "a header of {} bytes", text.size());
  text.resize(size_t(ReferenceLogpsSpec::kHeaderBytes - 1), ' ');
  return text + "\n";
}

void judge_reference_file(std::string_view file, const std::string& path, const ReferenceLogpsSpec& expected) {
  const auto header = size_t(ReferenceLogpsSpec::kHeaderBytes), hash = size_t(ReferenceLogpsSpec::kHashBytes);
  if (file.size() < header || file.substr(0, header) != header_of_reference(expected))
    throw FileError(
        fmt::format("{}: has not the header of these rows' reference: it is another file, or was made for other ones; "
                    "{}",
                    path, kRemove));
  if (int64_t(file.size()) != expected.file_bytes())
    throw FileError(fmt::format("{}: {} bytes, but {} tokens take {}: it is not whole; {}", path, file.size(),
                                expected.tokens, expected.file_bytes(), kRemove));
  if (to_hex(hash128(file.substr(header, file.size() - header - hash))) != file.substr(file.size() - hash))
    throw FileError(fmt::format("{}: is damaged: it has not the hash that stands at its end; {}", path, kRemove));
}

std::vector<int64_t> tokens_of_completions(const IdRows& rows) {
  std::vector<int64_t> tokens;
  for (int64_t row = 0; row < rows.size(); ++row)
    for (int64_t which = 0; which < rows.num_completions(); ++which)
      tokens.push_back(int64_t(rows.completion(row, which).size()));
  return tokens;
}

}  // namespace

CompletionPlaces::CompletionPlaces(const std::vector<int64_t>& tokens) : ends_(tokens.size()) {
  std::partial_sum(tokens.begin(), tokens.end(), ends_.begin());
}

CompletionPlaces::CompletionPlaces(const IdRows& rows) : CompletionPlaces(tokens_of_completions(rows)) {}

fs::path reference_logps_path(const fs::path& rows, const std::string& key) {
  constexpr size_t kDigits = 16;
  return rows.string() + "." + key.substr(0, kDigits) + ".ref";
}

ReferenceLogps::ReferenceLogps(const fs::path& file, const ReferenceLogpsSpec& expected, CompletionPlaces places)
    : file_(file), spec_(expected), places_(std::move(places)) {
  WEFT_CHECK(places_.tokens() == spec_.tokens, "{} tokens, {} expected", places_.tokens(), spec_.tokens);
  judge_reference_file(file_.text(), file.string(), spec_);
  file_.check_whole();
}

void ReferenceLogps::read(int64_t completion, std::span<double> losses) const {
  WEFT_CHECK(completion >= 0 && completion < places_.size(), "completion {} of {}", completion, places_.size());
  const int64_t first = places_.first(completion);
  WEFT_CHECK(int64_t(losses.size()) == places_.end(completion) - first, "{} numbers of a completion", losses.size());
  const std::byte* at = file_.bytes().data() + ReferenceLogpsSpec::kHeaderBytes + first * spec_.value_bytes;
  for (double& loss : losses) {
    float narrow = 0;
    if (spec_.value_bytes == 8)
      std::memcpy(&loss, at, sizeof loss);
    else
      std::memcpy(&narrow, at, sizeof narrow), loss = double(narrow);
    at += spec_.value_bytes;
  }
  file_.check_whole();
}

ReferenceLogpsWriter::ReferenceLogpsWriter(const fs::path& file, const ReferenceLogpsSpec& spec)
    : spec_(spec), file_(file, kOwnName) {
  file_.write(header_of_reference(spec));
}

void ReferenceLogpsWriter::write(std::span<const double> losses) {
  std::string bytes;
  for (const double loss : losses) {
    const auto narrow = float(loss);
    if (spec_.value_bytes == 8)
      bytes.append(reinterpret_cast<const char*>(&loss), sizeof loss);
    else
      bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  hash_.add(bytes);
  file_.write(bytes);
  written_ += int64_t(losses.size());
}

void ReferenceLogpsWriter::commit() {
  WEFT_CHECK(written_ == spec_.tokens, "{} of {} numbers are written", written_, spec_.tokens);
  file_.write(hash_.hex());
  file_.commit();
}

}  // namespace weft
