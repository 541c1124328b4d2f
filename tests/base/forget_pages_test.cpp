#include "weft/base/forget_pages.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>

#include "support.h"
#include "weft/base/mapped_file.h"

namespace weft {
namespace {

// Of mapped files, in memory.
int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8));
  return -1;
}

TEST(ForgetPages, WhatWasReadLeavesMemoryAndIsReadAgain) {
  if (resident_kib() < 0) GTEST_SKIP() << "/proc/self/status does not say what is in memory";
  testing::TempDir dir;
  constexpr int64_t kBytes = int64_t{16} << 20;
  testing::spill(dir / "file", std::string(size_t(kBytes), 'x'));
  const MappedFile file(dir / "file");
  const auto sum = [&] {
    return std::accumulate(file.text().begin(), file.text().end(), int64_t{0},
                           [](int64_t all, char c) { return all + c; });
  };
  EXPECT_EQ(sum(), kBytes * 'x');
  const int64_t before = resident_kib();
  forget_pages(file.bytes().subspan(1));  // but for the first page, of which it is a part
  EXPECT_LT(resident_kib(), before - kBytes / 1024 / 2);
  EXPECT_EQ(sum(), kBytes * 'x');
  forget_pages({});
}

}  // namespace
}  // namespace weft
