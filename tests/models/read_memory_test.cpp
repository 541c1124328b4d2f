// What reading a model takes of memory, as the kernel counts it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>

#include "models/tiny.h"
#include "support.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/models/fingerprint.h"
#include "weft/models/hf_weights.h"
#include "weft/models/peft.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

// A line of /proc/self/status, in bytes; 0 where there is none.
int64_t bytes_in_status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return 1024 * std::stoll(line.substr(key.size() + 1));
  return 0;
}

// How far a child that calls `f` grows at its largest; files that it maps count where it has read them. The kernel
// looks for a child's largest size from the fork on. -1 where f threw.
int64_t bytes_grown_by(const std::function<void()>& f) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    int64_t grown = -1;
    try {
      const int64_t before = bytes_in_status("VmRSS");
      f();
      grown = bytes_in_status("VmHWM") - before;
    } catch (const std::exception& e) { std::cerr << e.what() << std::endl; }
    ::_exit(::write(ends[1], &grown, sizeof(grown)) == ssize_t(sizeof(grown)) ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t grown = -1;
  if (::read(ends[0], &grown, sizeof(grown)) != ssize_t(sizeof(grown))) grown = -1;
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return grown;
}

// Zeros, which take no room on the disk, and pages in memory as other numbers do.
int64_t create_in_bf16(const ModelSpec& model, const std::filesystem::path& folder) {
  const SafetensorsLayout layout = hf_layout(model, DType::bf16);
  create_files(folder, layout);
  return layout.files().at(0).bytes;
}

struct ToRead {
  int64_t bytes;  // of the file
  int64_t grown;  // by what is kept of it, and in between
};
ToRead read_beside_adapter(ModelSpec model, WeightCodes codes) {
  const testing::TempDir dir;
  const int64_t bytes = create_in_bf16(model, dir.path());
  model.adapter = adapter_of(model, {.rank = 1, .base_codes = codes}, "test");
  const StepSpec step = testing::step_spec({}, kF32);
  const auto optimizer = make_adamw({});
  const PersistentArenas::Sizes sizes = measure(model, step, *optimizer, WorkspaceModel()).persistent;
  const auto read = [&] {
    PersistentArenas arenas(sizes);
    const TrainingState state(model, step, *optimizer, arenas);
    read_hf_weights(dir.path(), model, state.params, 1);
  };
  return {bytes, bytes_grown_by(read)};
}

std::string why_not_measured() {
#if defined(WEFT_SANITIZES) || defined(WEFT_SANITIZES_THREADS)
  return "sanitizers keep what is freed";
#endif
  return bytes_in_status("VmHWM") == 0 ? "the kernel does not say how large a process was" : "";
}

ModelSpec of_tensors_of_two_mb() {
  ModelSpec model = testing::tiny_llama();
  model.width = model.ffn_width = 1024;
  model.num_heads = model.num_kv_heads = 16;
  model.head_dim = 64;
  return model;
}

// The file has 29 MB, which are 59 MB as f32 and 8 MB in NF4. Beside these, a tensor of 2 MB is mapped and 4 MB of
// numbers are in work. That catches a reader that keeps the pages of all that it has read (which the mapping does by
// itself), or makes numbers of the whole model before codes.
TEST(ReadMemory, ABaseThatIsReadAsCodesIsNeverWholeInMemory) {
  if (const std::string why = why_not_measured(); !why.empty()) GTEST_SKIP() << why;
  const ToRead program = read_beside_adapter(testing::tiny_llama(), WeightCodes::nf4);  // its own pages
  const ToRead codes = read_beside_adapter(of_tensors_of_two_mb(), WeightCodes::nf4);
  ASSERT_GE(program.grown, 0);
  ASSERT_GE(codes.grown, 0);
  EXPECT_GT(codes.bytes, 29'000'000);
  EXPECT_LT(codes.grown - program.grown, codes.bytes * 9 / 10);
  EXPECT_GT(codes.grown - program.grown, codes.bytes / 8);  // half of the codes: it is seen at all
}

// As an adapter's checkpoint does with its base.
TEST(ReadMemory, WeightsThatGetAFingerprintAreNeverWholeInMemory) {
  if (const std::string why = why_not_measured(); !why.empty()) GTEST_SKIP() << why;
  const testing::TempDir dir;
  const int64_t bytes = create_in_bf16(of_tensors_of_two_mb(), dir.path());
  const int64_t grown = bytes_grown_by([&] { fingerprint_of_weights(dir.path(), nullptr); });
  ASSERT_GE(grown, 0);
  EXPECT_GT(bytes, 29'000'000);
  EXPECT_GT(grown, 2'000'000);  // one tensor: it is seen at all
  EXPECT_LT(grown, bytes / 2);
}

}  // namespace
}  // namespace weft
