#include "weft/comm/agree.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace weft {
namespace {

constexpr size_t kMessageBytes = 1024;

}  // namespace

void agree(Communicator& ranks, const std::function<void()>& f, Site site) {
  std::string mine;
  double failed = 0;
  try {
    if (f) f();
  } catch (const FileError& e) {
    mine = e.what();
    failed = 1;
  }
  ranks.all_reduce({&failed, DType::f64, {1}}, site).wait();
  if (failed == 0) return;
  std::vector<char> sent(kMessageBytes), all(kMessageBytes * size_t(ranks.size()));
  std::memcpy(sent.data(), mine.data(), std::min(mine.size(), kMessageBytes - 1));
  ranks
      .all_gather({sent.data(), DType::u8, {int64_t(kMessageBytes)}}, {all.data(), DType::u8, {int64_t(all.size())}},
                  site)
      .wait();
  for (int r = 0; r < ranks.size(); ++r)
    if (const char* text = all.data() + size_t(r) * kMessageBytes; *text != '\0') throw FileError(text);
  throw FileError("a rank failed without a reason");
}

}  // namespace weft
