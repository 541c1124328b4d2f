// Measured runs from CSV files.
#include <gtest/gtest.h>

#include <map>

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
  // Why a row with such cells cannot be planned.
  std::string refusal(const std::string& line) {
    return error_of<ConfigError>([&] { run_of(row(line)); });
  }
  // A row of 64 devices with other values in some columns.
  RunRow changed(const std::map<std::string, std::string>& cells) {
    std::map<std::string, std::string> all{
        {"id", "r1"},         {"gpu", "H100-80GB"},   {"precision", "bf16"}, {"n_layers", "32"},  {"d_model", "4096"},
        {"n_heads", "32"},    {"n_kv_heads", "8"},    {"ffn", "14336"},      {"vocab", "128256"}, {"gated", "1"},
        {"seq_len", "8192"},  {"n_gpus", "64"},       {"dp", "32"},          {"tp", "2"},         {"zero_stage", "1"},
        {"micro_batch", "1"}, {"global_batch", "128"}};
    for (const auto& [name, value] : cells) all[name] = value;
    std::string names, values;
    for (const auto& [name, value] : all) {
      names += (names.empty() ? "" : ",") + name;
      values += (values.empty() ? "" : ",") + value;
    }
    return read_run_rows(file(names + "\n" + values + "\n")).at(0);
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
  const RunRow badly_measured = row("r1,H100-80GB,bf16,32,4096,32,8,14336,128256,1,8192,8,4,2,1,,1,1,,1,128,-3,,x");
  EXPECT_NE(badly_measured.measured_fault.find("tokens_per_s_per_gpu = \"-3\" must be a number above 0"),
            std::string::npos);
  EXPECT_FALSE(badly_measured.measured_rate());
  EXPECT_EQ(run_of(badly_measured).recipe.parallel.dp, 4);
  EXPECT_NE(refusal("r1,H100-80GB,bf16,1e99,4096,32,8,14336,128256,1,8192,8,4,2,1,,1,1,,1,128,9,,x").find("n_layers"),
            std::string::npos);
}

// One bad cell is no reason not to read the others.
TEST_F(Rows, OtherRowsAreReadBesideABadOne) {
  const std::string good = "H100-80GB,bf16, 32 ,4096,32,8,14336,128256,TRUE,8192,8,4,2,1,,1,1,,1,128,9000,,llama";
  const auto rows = read_run_rows(file(std::string(kNames) +
                                       "\r\nr1,H100-80GB,bf16,32,4096,32,8,14336,128256,1,8192,"
                                       "8x8,4,2,1,,1,1,,1,128,9000,,x\r\nr2," +
                                       good + "\r\n"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NE(rows[0].fault.find("rows.csv:2: n_gpus = \"8x8\""), std::string::npos);
  EXPECT_TRUE(rows[1].fault.empty());
  EXPECT_EQ(rows[1].n_layers, 32);
  EXPECT_EQ(rows[1].gated, 1);
}

TEST_F(Rows, PrecisionsAreKnownByManyNames) {
  const auto of = [&](const std::string& name) { return row_precision(changed({{"precision", name}})); };
  for (const char* name : {"bf16", "BF16", "bfloat16", "bf16-mixed", "amp_bf16", ""})
    EXPECT_EQ(of(name), RowPrecision::bf16) << name;
  for (const char* name : {"fp16", "float16", "FP16"}) EXPECT_EQ(of(name), RowPrecision::fp16) << name;
  for (const char* name : {"fp32", "f32", "float32", "tf32"}) EXPECT_EQ(of(name), RowPrecision::f32) << name;
  for (const char* name : {"fp8", "FP8 (delayed scaling)", "mxfp8", "bf16/fp8"})
    EXPECT_EQ(of(name), RowPrecision::fp8) << name;
  for (const char* name : {"nvfp4", "NVFP4", "mxfp4"}) EXPECT_EQ(of(name), RowPrecision::fp4) << name;
  EXPECT_NE(error_of<ConfigError>([&] { of("int8"); }).find("no precision \"int8\""), std::string::npos);
}

TEST_F(Rows, WhatDoesNotFitTogetherIsAReasonOrANote) {
  const auto reason = [&](const std::map<std::string, std::string>& cells) {
    return error_of<ConfigError>([&] { run_of(changed(cells)); });
  };
  EXPECT_NE(reason({{"n_kv_heads", "5"}}).find("n_heads = 32 is no multiple of n_kv_heads = 5"), std::string::npos);
  EXPECT_NE(reason({{"cp", "3"}, {"n_gpus", "192"}}).find("seq_len = 8192 is no multiple of 2 x cp"),
            std::string::npos);
  EXPECT_NE(reason({{"zero_stage", "4"}}).find("zero_stage = 4 is none of 0 to 3"), std::string::npos);
  EXPECT_NE(reason({{"moe_experts", "8"}, {"moe_topk", "9"}, {"moe_ffn", "512"}}).find("moe_topk = 9"),
            std::string::npos);
  EXPECT_NE(reason({{"global_batch", "100"}}).find("global_batch = 100 is no multiple of dp = 32"), std::string::npos);
  const auto noted = [&](const std::map<std::string, std::string>& cells, const std::string& note) {
    const RowRun run = run_of(changed(cells));
    EXPECT_EQ(run.notes.size(), 1u) << note;
    EXPECT_NE(run.notes.at(0).find(note), std::string::npos) << run.notes.at(0);
    return run.recipe;
  };
  EXPECT_EQ(noted({{"micro_batch", "3"}}, "micro_batch = 3, planned with 2").train.micro_batch_size, 2);
  EXPECT_EQ(noted({{"cp", "2"}, {"tp", "1"}, {"dp", "64"}}, "dp = 64 has cp in it").parallel.dp, 32);
  EXPECT_FALSE(noted({{"sp", "1"}, {"tp", "2"}, {"seq_len", "8191"}}, "sp cuts no").parallel.sequence_parallel);
  EXPECT_EQ(noted({{"recompute", "block"}}, "planned as selective").parallel.recompute, RecomputeKind::selective);
  EXPECT_EQ(run_of(changed({{"global_batch", ""}, {"grad_accum", "4"}})).recipe.train.global_batch_size, 128);
}

// Experts that no device has room for are over several, as long as nobody says where they are.
TEST_F(Rows, ExpertsWithoutEpAreWhereTheyHaveRoom) {
  const auto ep = [&](const char* experts, const char* said) {
    return run_of(
               changed({{"moe_experts", experts}, {"moe_topk", "2"}, {"moe_ffn", "14336"}, {"ffn", ""}, {"ep", said}}))
        .recipe.parallel.ep;
  };
  EXPECT_EQ(ep("8", ""), 8);
  EXPECT_EQ(ep("8", "2"), 2);
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
