// Measured runs from CSV files.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/csv.h"
#include "weft/forecast/run_rows.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

using testing::error_of;
using testing::spill;
using testing::TempDir;

constexpr const char* kNames =
    "id,gpu,precision,n_layers,d_model,n_heads,n_kv_heads,ffn,vocab,gated,seq_len,n_gpus,dp,tp,pp,vpp,cp,zero_stage,"
    "fsdp_shard,micro_batch,global_batch,tokens_per_s_per_gpu,framework_version,model";

class Rows : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& text) {
    spill(dir_ / "rows.csv", text);
    return dir_ / "rows.csv";
  }
  RunRow row(const std::string& line) { return read_run_rows(file(std::string(kNames) + "\n" + line + "\n")).at(0); }
  std::string refusal(const std::string& line) {
    return error_of<FileError>([&] { row(line); });
  }
  TempDir dir_;
};

TEST_F(Rows, CellsMayBeQuotedAndHaveCommasAndLineEnds) {
  CsvReader csv(
      file("\xEF\xBB\xBF"
           "a,b\r\n\"x, \"\"y\"\"\nz\",2\n\n3,\n"));
  EXPECT_EQ(csv.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*csv.next(), (std::vector<std::string>{"x, \"y\"\nz", "2"}));
  EXPECT_EQ(csv.line(), 2);
  EXPECT_EQ(*csv.next(), (std::vector<std::string>{"3", ""}));
  EXPECT_EQ(csv.line(), 5);
  EXPECT_FALSE(csv.next());
}

TEST_F(Rows, WhatIsNoTableIsRefusedWithItsLine) {
  const auto refused = [&](const std::string& text) {
    return error_of<FileError>([&] {
      CsvReader csv(file(text));
      while (csv.next()) {}
    });
  };
  EXPECT_NE(refused("a,b\n1,2\n1,2,3\n").find("rows.csv:3: 3 cells, but line 1 has 2 names"), std::string::npos);
  EXPECT_NE(refused("a,a\n").find("two columns \"a\""), std::string::npos);
  EXPECT_NE(refused("a,b\n\"1,2\n").find(":2: a quote that does not end"), std::string::npos);
  EXPECT_NE(refused("").find("is empty"), std::string::npos);
  EXPECT_NE(error_of<FileError>([&] { read_run_rows(dir_ / "none.csv"); }).find("cannot be read"), std::string::npos);
  EXPECT_NE(error_of<FileError>([&] { read_run_rows(file("id,gpu\nx,H100\n")); }).find("has no column precision"),
            std::string::npos);
}

TEST_F(Rows, NumbersAreJudgedByCell) {
  const std::string good = "r1,H100-80GB,bf16,32,4096,32,8,14336,128256,1,8192,8,4,2,1,,1,1,,1,128,9000,,llama";
  EXPECT_EQ(row(good).n_layers, 32);
  EXPECT_NE(refusal("r1,H100-80GB,bf16,many,4096,32,8,14336,128256,1,8192,8,4,2,1,,1,1,,1,128,9000,,x")
                .find("rows.csv:2: n_layers = \"many\" must be a whole number"),
            std::string::npos);
  EXPECT_NE(refusal("r1,H100-80GB,bf16,32,4096,32,8,14336,128256,1,8192,8,4,2,1,,1,1,,1,128,-3,,x")
                .find("tokens_per_s_per_gpu = \"-3\" must be a number above 0"),
            std::string::npos);
  EXPECT_NE(refusal("r1,H100-80GB,bf16,1e99,4096,32,8,14336,128256,1,8192,8,4,2,1,,1,1,,1,128,9,,x").find("n_layers"),
            std::string::npos);
}

TEST_F(Rows, ARowIsARecipe) {
  const RowRun run =
      run_of(row("r1,H100-80GB,fp8,32,4096,32,8,14336,128256,1,8192,32,4,2,4,2,1,1,,1,128,9000,NeMo 24.07,llama"));
  const auto& p = run.recipe.parallel;
  EXPECT_EQ(p.dp * p.tp * p.pp * p.cp, 32);
  EXPECT_EQ(p.pipeline_schedule, ScheduleKind::interleaved_1f1b);
  EXPECT_EQ(p.virtual_pipeline_parallel_size, 2);
  EXPECT_EQ(run.recipe.train.precision, PrecisionChoice::bf16);
  EXPECT_EQ(num_micro_batches_of(run.recipe), 32);
  EXPECT_EQ(run.config.spec.num_kv_heads, 8);
  EXPECT_EQ(run.config.spec.mlp, MlpKind::swiglu);
  EXPECT_TRUE(run.notes.empty());
}

TEST_F(Rows, ALayoutThatIsNotTheDevicesIsRefused) {
  EXPECT_NE(error_of<ConfigError>([&] {
              run_of(row("r7,H100-80GB,bf16,2,64,4,4,256,100,0,64,16,4,2,1,,1,1,,1,8,9,,x"));
            }).find("row r7: dp x tp x pp x cp = 8 are not its 16 devices"),
            std::string::npos);
  EXPECT_NE(error_of<ConfigError>([&] {
              run_of(row("r8,H100-80GB,bf16,,64,4,4,256,100,0,64,8,4,2,1,,1,1,,1,8,9,,x"));
            }).find("row r8 does not say its n_layers"),
            std::string::npos);
}

TEST_F(Rows, AReleaseIsAYear) {
  const auto year = [](const std::string& version) {
    RunRow row;
    row.framework_version = version;
    return row.release_year();
  };
  EXPECT_NEAR(year("NeMo container 26.07"), 2026.5, 1e-9);
  EXPECT_NEAR(year("dgxc-benchmarking v25.01.1"), 2025, 1e-9);
  EXPECT_NEAR(year("2023-11"), 2023 + 10 / 12., 1e-9);
  EXPECT_EQ(year("HEAD"), 0);
}

TEST_F(Rows, TheRateIsMeasuredOrFollowsFromTheStep) {
  RunRow row;
  row.global_batch = 8;
  row.seq_len = 100;
  row.n_gpus = 4;
  EXPECT_FALSE(row.measured_rate());
  row.step_time_s = 2;
  EXPECT_EQ(*row.measured_rate(), 100);
  row.tokens_per_s_per_gpu = 7;
  EXPECT_EQ(*row.measured_rate(), 7);
}

TEST_F(Rows, StatesThatNoDeviceCanHoldAreSharded) {
  const auto stage = [&](const char* layers, const char* zero_stage) {
    return run_of(row(fmt::format("r1,H100-80GB,bf16,{},4096,32,8,14336,128256,1,8192,8,8,1,1,,1,{},,1,128,9000,,x",
                                  layers, zero_stage)))
        .recipe.parallel.zero_stage;
  };
  EXPECT_EQ(stage("32", ""), 3);  // 128 GB of states
  EXPECT_EQ(stage("4", ""), 0);
  EXPECT_EQ(stage("32", "0"), 0);  // the source says so
  EXPECT_EQ(stage("32", "1"), 1);
}

}  // namespace
}  // namespace weft
