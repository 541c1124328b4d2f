// A file that is shortened while weft reads it ends the command with a message, not by a signal.
#include "weft/apps/failure.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <thread>

#include "apps/models.h"
#include "apps/program.h"
#include "token_files.h"
#include "weft/base/mapped_file.h"
#include "weft/data/token_source.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::Process;
using testing::slurp;
using testing::spill;
using testing::TempDir;

TEST(LostFileDeathTest, APageThatIsGoneEndsTheCommandAndNamesTheFileWithBothSizes) {
  const TempDir dir;
  const fs::path path = dir / "tokens.bin";
  spill(path, std::string(20000, 'x'));
  EXPECT_EXIT(
      {
        report_lost_files("data stats", 0);
        const MappedFile file(path);
        fs::resize_file(path, 100);
        volatile char last = file.text()[19999];
        exit(last == 'x' ? 2 : 3);
      },
      ::testing::ExitedWithCode(1),
      "weft data stats: error: .*/tokens.bin: had 20000 bytes when it was opened, and has 100 now");
}

TEST(LostFileDeathTest, ABusErrorWithoutAFileOrWithoutANoteIsNotTakenForAShortenedFile) {
  const TempDir dir;
  const fs::path path = dir / "other";
  spill(path, std::string(20000, 'x'));
  EXPECT_EXIT(
      {
        report_lost_files("train", 0);
        const int fd = open(path.c_str(), O_RDWR);
        const auto* memory = static_cast<volatile char*>(mmap(nullptr, 20000, PROT_READ, MAP_SHARED, fd, 0));
        fs::resize_file(path, 0);
        exit(memory[8192]);
      },
      ::testing::ExitedWithCode(1), "weft train: error: .*/other: memory that stands for this file cannot be had");
  EXPECT_EXIT(
      {
        report_lost_files("train", 0);
        raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

// Trains without end on 200,000 tokens, shortens them meanwhile, and tells how the run ends.
Finished shortened_to(uintmax_t bytes, const std::vector<std::string>& settings) {
  const TempDir dir;
  fs::create_directories(dir / "model");
  spill(dir / "model/config.json", testing::kOneLayer);
  testing::write_raw_tokens(dir / "t.bin", std::vector<int32_t>(200000, 7), "uint16");
  spill(dir / "r.toml", "[model]\npath = \"" + (dir / "model").string() + "\"\ninit = \"random\"\n[data]\ntrain = [\"" +
                            (dir / "t.bin").string() + "\"]\n");
  std::vector<std::string> args{"train",
                                (dir / "r.toml").string(),
                                "run.dir=" + (dir / "run").string(),
                                "run.backend=ref",
                                "train.seq_length=16",
                                "train.global_batch_size=4",
                                "train.micro_batch_size=1",
                                "train.train_iters=1000000"};
  args.insert(args.end(), settings.begin(), settings.end());
  Process process({.args = args});
  while (process.running() && slurp(dir / "run/metrics.jsonl").empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  fs::resize_file(dir / "t.bin", bytes);
  return process.wait();
}

TEST(LostFile, ATokenFileThatIsShortenedUnderARunEndsItWithAnErrorThatNamesIt) {
  // The file has 400,000 bytes: whole pages are lost, or a part of the last one.
  for (const auto& [bytes, dp] : {std::pair<uintmax_t, const char*>{0, "parallel.dp=2"}, {399999, "parallel.dp=1"}}) {
    const Finished f = shortened_to(bytes, {dp});
    EXPECT_EQ(f.status, 1) << f.err;
    EXPECT_SAYS(f.err, "weft train: error: ");
    EXPECT_SAYS(f.err, "t.bin: had 400000 bytes when it was opened, and has " + std::to_string(bytes) + " now");
  }
}

}  // namespace
}  // namespace weft
