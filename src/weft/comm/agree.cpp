#include "weft/comm/agree.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

namespace weft {
namespace {

constexpr size_t kMessageBytes = 1024;

}  // namespace

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
  double has_one = mine.empty() ? 0 : 1;
  ranks.all_reduce({&has_one, DType::f64, {1}}, site).wait();
  if (has_one == 0) return "";
  const auto size = size_t(ranks.size());
  std::vector<char> sent(kMessageBytes), all(kMessageBytes * size);
  std::memcpy(sent.data(), mine.data(), std::min(mine.size(), kMessageBytes - 1));
  ranks
      .all_gather({sent.data(), DType::u8, {int64_t(kMessageBytes)}}, {all.data(), DType::u8, {int64_t(all.size())}},
                  site)
      .wait();
  size_t r = 0;
  while (all[r * kMessageBytes] == '\0') ++r;
  return all.data() + r * kMessageBytes;
}

}  // namespace weft
