// run.backend = "cuda" where there is no GPU: refused at once by name, planned, or passed by.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>

#include "apps/program.h"
#include "weft/apps/cuda_machine.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::TempDir;

// A recipe and a model in a folder, for a program that sees no GPU, even if there is one.
class WithoutAGpu : public ::testing::Test {
 protected:
  WithoutAGpu() {
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    const std::string golden = std::string(testing::kSourceDir) + "/tests/golden/llama-gqa";
    testing::spill(dir_ / "r.toml", "[model]\npath = \"" + golden + "\"\ninit = \"random\"\n[data]\ntrain = [\"" +
                                        golden +
                                        "/tokens.bin\"]\n[train]\nseq_length = 8\nglobal_batch_size = 4\n"
                                        "micro_batch_size = 2\ntrain_iters = 2\n[optimizer]\nlr_warmup_iters = 0\n"
                                        "[run]\nthreads = 1\ndir = \"" +
                                        run().string() + "\"\n");
  }
  ~WithoutAGpu() override { unsetenv("CUDA_VISIBLE_DEVICES"); }

  std::string recipe() const { return (dir_ / "r.toml").string(); }
  fs::path run() const { return dir_ / "run"; }
  // What is missing here, as the program says it: the module, the driver, or a GPU that the driver shows.
  static void expect_says_what_is_missing(const std::string& text) {
    const char* const no_driver = "there is no NVIDIA driver on this machine; install one, or in a container";
    const bool driver = text.find(no_driver) == std::string::npos;
    EXPECT_SAYS(text, std::string(testing::cuda_module_file()).empty() ? "weft's module for GPUs is not in this build"
                      : driver ? "the NVIDIA driver sees no GPU (nvidia-smi shows what it sees; CUDA_VISIBLE_DEVICES"
                               : no_driver);
  }

  TempDir dir_;
};

TEST_F(WithoutAGpu, EveryCommandRefusesItWithWhatIsMissing) {
  ASSERT_EQ(testing::weft({"train", recipe()}).status, 0);
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"train", recipe(), "run.backend=cuda", "parallel.dp=2", "run.dir=" + (dir_ / "other").string()},
           {"verify", recipe(), "run.backend=cuda"},
           {"generate", run().string(), "--backend", "cuda", "--prompt-ids", "1,2", "--ids"}}) {
    const Finished f = testing::weft(args);
    EXPECT_EQ(f.status, 2) << args[0];
    EXPECT_TRUE(f.err.starts_with("weft " + args[0] + ": error: run.backend = \"cuda\": ")) << f.err;
    EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1) << f.err;
    expect_says_what_is_missing(f.err);
  }
  EXPECT_FALSE(fs::exists(dir_ / "other"));
}

TEST_F(WithoutAGpu, AutoTakesTheCpuAndSaysWhy) {
  const Finished f = testing::weft({"train", recipe(), "run.backend=auto"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(f.err.starts_with("note: run.backend = \"auto\" takes cpu, as a GPU cannot be used: ")) << f.err;
  expect_says_what_is_missing(f.err);
  EXPECT_SAYS(testing::slurp(run() / "recipe.toml"), "backend = \"cpu\"");
  const Finished text = testing::weft(
      {"generate", run().string(), "--backend", "auto", "--prompt-ids", "1,2", "--ids", "--max-tokens=2"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_SAYS(text.err, "takes cpu");
}

// On a laptop, for the machine that it will run on.
TEST_F(WithoutAGpu, ARunOnOneIsPlannedByTheModuleAlone) {
  const Finished f = testing::weft({"plan", recipe(), "run.backend=cuda"});
  if (std::string(testing::cuda_module_file()).empty()) {
    EXPECT_EQ(f.status, 2);
    return expect_says_what_is_missing(f.err);
  }
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "cuda, by its module alone: no GPU was looked for");
  EXPECT_SAYS(f.out, "workspace");
}

TEST_F(WithoutAGpu, WhetherCudnnMayBeUsedIsOnOrOff) {
  if (std::string(testing::cuda_module_file()).empty()) GTEST_SKIP() << "there is no module";
  for (const auto& [says, status] : {std::pair{"on", 0}, std::pair{"off", 0}, std::pair{"0", 2}}) {
    setenv("WEFT_CUDNN", says, 1);
    const Finished f = testing::weft({"plan", recipe(), "run.backend=cuda"});
    unsetenv("WEFT_CUDNN");
    EXPECT_EQ(f.status, status) << f.err;
    EXPECT_SAYS(f.err, status == 0 ? "" : "run.backend = \"cuda\": WEFT_CUDNN=0: it may be on or off");
  }
}

// Not even `auto`, which would take it for a GPU that is missing.
TEST_F(WithoutAGpu, AWrongVariableIsRefusedByName) {
  for (const auto& [variable, says, reason] : std::vector<std::array<const char*, 3>>{
           {"WEFT_CUDNN", "0", "WEFT_CUDNN=0: it may be on or off"},
           {"WEFT_CUDA_GRAPHS", "yes", "WEFT_CUDA_GRAPHS=yes: it may be on or off"},
           {"WEFT_CUDA_CACHE", "here", "WEFT_CUDA_CACHE=here: it may be off or a whole path, /of/a/folder"}}) {
    setenv(variable, says, 1);
    for (const char* backend : {"run.backend=auto", "run.backend=cuda"}) {
      const Finished f = testing::weft({"train", recipe(), backend});
      EXPECT_EQ(f.status, 2) << f.err;
      EXPECT_SAYS(f.err, reason);
    }
    unsetenv(variable);
  }
}

TEST(CudaCache, LiesAmongTheUsersCachesUnlessAVariableSaysOtherwise) {
  using Variables = std::map<std::string, std::string>;
  const auto folder = [](const Variables& set) {
    return cuda_cache_folder([&](const char* name) {
      const auto at = set.find(name);
      return at == set.end() ? std::nullopt : std::optional(at->second);
    });
  };
  EXPECT_EQ(folder({{"HOME", "/users/ada"}}), "/users/ada/.cache/weft");
  EXPECT_EQ(folder({{"HOME", "/users/ada"}, {"XDG_CACHE_HOME", "/tmp/ada"}}), "/tmp/ada/weft");
  EXPECT_EQ(folder({{"HOME", "/users/ada"}, {"XDG_CACHE_HOME", ""}}), "/users/ada/.cache/weft");
  EXPECT_EQ(folder({{"HOME", "/users/ada"}, {"WEFT_CUDA_CACHE", "/fast"}}), "/fast");
  EXPECT_EQ(folder({{"HOME", "/users/ada"}, {"WEFT_CUDA_CACHE", "off"}}), "");
  EXPECT_EQ(folder({}), "");
  for (const char* none : {"", "no", "cache"}) EXPECT_THROW(folder({{"WEFT_CUDA_CACHE", none}}), Error) << none;
}

TEST_F(WithoutAGpu, AProgramWithoutItsModuleSaysWhereItLooked) {
  const fs::path program = dir_ / "bin/weft";
  fs::create_directory(dir_ / "bin");
  fs::copy_file(testing::kProgram, program);
  const Finished f = testing::run({.args = {"train", recipe(), "run.backend=cuda"}, .program = program.string()});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "weft's module for GPUs is not in this build: there is no " + (dir_ / "bin").string() +
                         "/libweft_cuda.so, " + (dir_ / "lib").string() + "/libweft_cuda.so; build it where a CUDA");
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(WithoutAGpu, AModuleThatIsNoneIsNamed) {
  setenv("WEFT_CUDA_MODULE", recipe().c_str(), 1);
  const Finished f = testing::weft({"plan", recipe(), "run.backend=cuda"});
  unsetenv("WEFT_CUDA_MODULE");
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "run.backend = \"cuda\": " + recipe() + ": ");
  EXPECT_SAYS(f.err, "docs/gpu.md");
}

}  // namespace
}  // namespace weft
