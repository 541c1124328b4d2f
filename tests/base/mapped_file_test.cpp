// A file that is mapped is read as it was, or not at all.
#include "weft/base/mapped_file.h"

#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::spill;
using testing::TempDir;

TEST(MappedFile, AFileThatIsShortenedWithinItsLastPageIsNamedWithBothSizes) {
  const TempDir dir;
  const fs::path path = dir / "tokens.bin";
  spill(path, std::string(5000, 'x'));
  const MappedFile file(path);
  EXPECT_EQ(error_of([&] { file.check_whole(); }), "");
  fs::resize_file(path, 4100);
  EXPECT_EQ(file.text()[4500], '\0');  // without a signal
  EXPECT_EQ(error_of([&] { file.check_whole(); }),
            path.string() +
                ": had 5000 bytes when it was opened, and has 4100 now: something has shortened it while "
                "weft read it; put the whole file back, and run the same command again");
}

TEST(MappedFile, AFileThatGrowsOrIsReplacedOrRemovedIsReadAsItWas) {
  const TempDir dir;
  const fs::path path = dir / "a";
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{8193}}) {
    const std::string text(bytes, 'y');
    spill(path, text);
    MappedFile first(path);
    const MappedFile file = std::move(first);
    fs::resize_file(path, bytes + 9000);
    EXPECT_EQ(error_of([&] { file.check_whole(); }), "");
    spill(dir / "b", "z");
    fs::rename(dir / "b", path);
    EXPECT_EQ(error_of([&] { file.check_whole(); }), "");
    fs::remove(path);
    EXPECT_EQ(error_of([&] { file.check_whole(); }), "");
    EXPECT_TRUE(file.text() == text);
  }
  spill(path, "");
  EXPECT_EQ(error_of([&] { MappedFile(path).check_whole(); }), "");
}

}  // namespace
}  // namespace weft
