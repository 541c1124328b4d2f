#include "weft/base/number_locks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::TempDir;

TEST(NumberLocks, AreOneOwnersAtATime) {
  const TempDir dir;
  NumberLocks a(dir / "locks"), b(dir / "locks");
  ASSERT_TRUE(a.work());
  EXPECT_TRUE(a.try_lock(5));
  EXPECT_TRUE(a.try_lock(5));
  EXPECT_FALSE(b.try_lock(5));
  EXPECT_FALSE(b.try_lock(0, NumberLocks::kToTheEnd));
  EXPECT_TRUE(b.try_lock(4));
  EXPECT_TRUE(b.try_lock(int64_t{1} << 40));
  a.unlock(5);
  EXPECT_TRUE(b.try_lock(5));
}

TEST(NumberLocks, AreSeenByOthersWithoutBeingTaken) {
  const TempDir dir;
  NumberLocks a(dir / "locks"), b(dir / "locks");
  EXPECT_EQ(b.locked_by_another(0, 10), std::nullopt);
  ASSERT_TRUE(a.try_lock(7));
  EXPECT_EQ(b.locked_by_another(0, 10), 7);
  EXPECT_EQ(b.locked_by_another(7), 7);
  EXPECT_EQ(b.locked_by_another(0, 7), std::nullopt);
  EXPECT_EQ(a.locked_by_another(0, 10), std::nullopt);
}

TEST(NumberLocks, VanishWithTheirOwner) {
  const TempDir dir;
  NumberLocks mine(dir / "locks");
  {
    NumberLocks other(dir / "locks");
    ASSERT_TRUE(other.try_lock(1));
  }
  EXPECT_TRUE(mine.try_lock(1));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    NumberLocks theirs(dir / "locks");
    const char locked = theirs.try_lock(2) ? 'y' : 'n';
    if (write(ready[1], &locked, 1) == 1) pause();
    _exit(1);
  }
  char locked = 'n';
  ASSERT_EQ(read(ready[0], &locked, 1), 1);
  EXPECT_EQ(locked, 'y');
  EXPECT_FALSE(mine.try_lock(2));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(mine.try_lock(2));
  close(ready[0]), close(ready[1]);
}

TEST(NumberLocks, AFileThatCannotBeOpenedIsNamed) {
  const TempDir dir;
  try {
    const NumberLocks locks(dir / "none/locks");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find("none/locks: cannot be opened"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft
