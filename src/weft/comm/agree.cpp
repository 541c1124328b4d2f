#include "weft/comm/agree.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace weft {

void agree(Communicator& ranks, const std::function<void()>& f, Site site) {
  std::string mine;
  try {
    if (f) f();
  } catch (const FileError& e) { mine = e.what(); } catch (const std::filesystem::filesystem_error& e) {
    mine = e.what();
  }
  if (const std::string failure = first_text(ranks, mine, site); !failure.empty()) throw FileError(failure);
}

std::string first_text(Communicator& ranks, const std::string& mine, Site site) {
  const auto sum = [&](std::vector<double>& x) {
    ranks.all_reduce({x.data(), DType::f64, {int64_t(x.size())}}, site).wait();
  };
  const auto self = size_t(ranks.rank());
  std::vector<double> lengths(size_t(ranks.size()), 0);
  lengths[self] = double(mine.size());
  sum(lengths);
  const auto first = std::find_if(lengths.begin(), lengths.end(), [](double length) { return length > 0; });
  if (first == lengths.end()) return "";
  std::vector<double> characters(size_t(*first), 0);
  if (self == size_t(first - lengths.begin()))
    std::transform(mine.begin(), mine.end(), characters.begin(), [](char c) { return double(uint8_t(c)); });
  sum(characters);
  std::string text(characters.size(), '\0');
  std::transform(characters.begin(), characters.end(), text.begin(), [](double c) { return char(uint8_t(c)); });
  return text;
}

}  // namespace weft
