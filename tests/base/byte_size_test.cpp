#include "weft/base/byte_size.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ByteSize, IsANumberWithAUnit) {
  EXPECT_EQ(byte_size_of("60GiB"), int64_t{60} << 30);
  EXPECT_EQ(byte_size_of("1.5 mib"), 3 << 19);
  EXPECT_EQ(byte_size_of("80GB"), 80'000'000'000);
  EXPECT_EQ(byte_size_of("4096"), 4096);
  for (const char* no : {"", "GiB", "-1GiB", "1e3", "60 gigs", "0", "1.2.3GiB", "99999999TiB", "60GiB free", "nan"})
    EXPECT_EQ(byte_size_of(no), std::nullopt) << no;
  for (const int64_t bytes : {int64_t{1}, int64_t{1023}, int64_t{1025}, int64_t{59} << 30, (int64_t{59} << 30) + 1}) {
    EXPECT_GE(byte_size_of(byte_size_text(bytes)), bytes);
    EXPECT_LE(double(byte_size_of(byte_size_text(bytes)).value()), 1.011 * double(bytes));
  }
  EXPECT_EQ(byte_size_text(int64_t{59} << 30), "59.00GiB");
}

}  // namespace
}  // namespace weft
