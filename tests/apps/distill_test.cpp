// A student beside its teacher, by the commands alone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::weft;

namespace fs = std::filesystem;

const std::string kCase = std::string(testing::kSourceDir) + "/tests/golden/distill-forward";

class Students : public testing::RecipeTest {
 protected:
  void SetUp() override {
    testing::spill(dir_ / "r.toml",
                   "[model]\npath = \"" + kCase + "\"\n[data]\ntrain = [\"" + kCase +
                       "/tokens.bin\"]\nshuffle = false\n[train]\nobjective = \"distill\"\nseq_length = 40\n"
                       "global_batch_size = 4\nmicro_batch_size = 2\ntrain_iters = 4\n[objective]\nteacher = \"" +
                       kCase + "/teacher\"\n[optimizer]\nlr = 1e-3\n[run]\nthreads = 1\n");
  }
  Finished store(std::vector<std::string> more) {
    more.insert(more.begin(), {"teacher-logits", (dir_ / "r.toml").string()});
    return weft(more);
  }
  // A teacher's folder, which a test changes.
  fs::path a_teacher(const std::string& name) {
    fs::copy(kCase + "/teacher", dir_ / name, fs::copy_options::recursive);
    return dir_ / name;
  }
  static void set(const fs::path& json_file, const nlohmann::json& fields) {
    nlohmann::json json = nlohmann::json::parse(testing::slurp(json_file));
    json.update(fields);
    testing::spill(json_file, json.dump());
  }
};
using StudentsSlow = Students;

// It reads the teacher again, and knows another one.
TEST_F(StudentsSlow, GoOnFromACheckpointBesideTheSameTeacher) {
  const std::string teacher = "objective.teacher=" + a_teacher("teacher").string();
  ASSERT_EQ(run("train", {teacher}, "whole").status, 0);
  ASSERT_EQ(run("train", {teacher, "train.train_iters=2", "optimizer.lr_decay_iters=4"}, "parts").status, 0);
  const Finished f = run("train", {teacher, "train.train_iters=4", "optimizer.lr_decay_iters=4"}, "parts");
  ASSERT_EQ(f.status, 0) << f.err;
  const auto whole = steps_of("whole"), parts = steps_of("parts");
  ASSERT_EQ(whole.size(), parts.size());
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char* name : {"loss", "grad_norm", "kl", "ce"}) EXPECT_EQ(whole[i][name], parts[i][name]) << i << name;
  fs::copy(kCase + "/model.safetensors", dir_ / "teacher/model.safetensors", fs::copy_options::overwrite_existing);
  const Finished other = run("train", {teacher, "train.train_iters=6", "optimizer.lr_decay_iters=4"}, "parts");
  EXPECT_NE(other.status, 0);
  EXPECT_SAYS(other.err, "was trained beside other weights");
  EXPECT_SAYS(other.err, "put the teacher there");
}

TEST_F(Students, LossIsOfItsTermsWhereSomeTargetsDoNotCount) {
  std::string mask(fs::file_size(kCase + "/tokens.bin") / 2, '\1');
  for (size_t i = 0; i < mask.size(); i += 3) mask[i] = 0;
  testing::spill(dir_ / "mask.bin", mask);
  const Finished f = run("train", {"data.loss_mask=" + (dir_ / "mask.bin").string(), "train.train_iters=1",
                                   "objective.temperature=3", "objective.alpha=0.3"});
  ASSERT_EQ(f.status, 0) << f.err;
  const nlohmann::json step = steps_of("run")[0];
  EXPECT_NEAR(step["loss"].get<double>(), 0.3 * 9 * step["kl"].get<double>() + 0.7 * step["ce"].get<double>(), 1e-12);
}

TEST_F(Students, ArePlannedAndVerified) {
  const Finished plan = run("plan", {});
  EXPECT_EQ(plan.status, 0) << plan.err;
  for (const char* row : {"frozen models", "states of the teacher"}) EXPECT_SAYS(plan.out, row);
  const Finished verify = run("verify", {"parallel.tp=2", "parallel.dp=2", "train.precision=bf16", "--steps=2"});
  EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
  EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
}

TEST_F(Students, MayLeaveTheirTeacherDividedAmongTheRanks) {
  const std::vector<std::string> ranks{"parallel.dp=2", "train.train_iters=2"};
  std::vector<std::string> divided = ranks;
  divided.emplace_back("parallel.frozen_shard_size=2");
  ASSERT_EQ(run("train", ranks, "whole").status, 0);
  const Finished f = run("train", divided, "divided");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "dp 2, frozen models over 2 of them");
  const auto whole = steps_of("whole"), apart = steps_of("divided");
  ASSERT_EQ(whole.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    for (const char* name : {"loss", "kl", "grad_norm"}) EXPECT_EQ(whole[i][name], apart[i][name]) << i << name;
  const Finished verify = run("verify", {"parallel.dp=2", "parallel.frozen_shard_size=2", "--steps=1"});
  EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
}

// All logits of every token say what the teacher does, in whatever order samples come; few say nearly that.
TEST_F(Students, LearnFromStoredLogitsAsBesideTheTeacher) {
  const std::string all = (dir_ / "all").string(), few = (dir_ / "few").string();
  const Finished stored = store({"--out", all, "--top-k", "128"});
  ASSERT_EQ(stored.status, 0) << stored.err;
  EXPECT_SAYS(stored.err, "samples, 0 s left");
  ASSERT_EQ(store({"--out", few, "--top-k", "16", "parallel.dp=2", "parallel.cp=2"}).status, 0);
  ASSERT_EQ(run("train", {"data.shuffle=true", "train.train_iters=2"}, "beside").status, 0);
  for (const std::string& file : {all, few}) {
    const Finished f = run(
        "train", {"data.shuffle=true", "train.train_iters=2", "objective.teacher=", "objective.teacher_logits=" + file},
        "of-" + file.substr(file.rfind('/') + 1));
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(f.err.find("frozen models"), f.err.npos);
  }
  const auto beside = steps_of("beside"), of_all = steps_of("of-all"), of_few = steps_of("of-few");
  ASSERT_EQ(beside.size(), of_all.size());
  for (size_t i = 0; i < beside.size(); ++i) {
    for (const char* name : {"loss", "grad_norm", "kl", "ce"})
      EXPECT_NEAR(of_all[i][name].get<double>(), beside[i][name].get<double>(), 2e-5 * beside[i][name].get<double>())
          << i << name;
    EXPECT_LT(of_few[i]["kl"].get<double>(), beside[i]["kl"].get<double>());  // that of fewer classes
    EXPECT_GT(of_few[i]["kl"].get<double>(), 0.2 * beside[i]["kl"].get<double>());
  }
}

// As its logits with the same k that were stored by one rank.
TEST_F(Students, LearnFromATeacherOnALayoutOfItsOwn) {
  const std::string file = (dir_ / "top").string(), one_step = "train.train_iters=1";
  ASSERT_EQ(store({"--out", file, "--top-k", "8"}).status, 0);
  ASSERT_EQ(run("train", {one_step, "objective.teacher=", "objective.teacher_logits=" + file}, "stored").status, 0);
  const nlohmann::json stored = steps_of("stored")[0];
  const std::vector<std::vector<std::string>> layouts = {
      {"parallel.dp=2", "parallel.teacher_tp=2"},
      {"parallel.tp=2", "parallel.pp=2", "parallel.teacher_pp=1", "parallel.teacher_tp=1", "parallel.teacher_cp=2"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    std::vector<std::string> more = layouts[i];
    more.insert(more.end(), {one_step, "objective.top_k=8"});
    const std::string folder = "apart" + std::to_string(i);
    const Finished f = run("train", more, folder);
    ASSERT_EQ(f.status, 0) << f.err;
    if (i == 0) { EXPECT_SAYS(f.err, "the teacher by tp 2, pp 1, cp 1, ep 1"); }
    const nlohmann::json apart = steps_of(folder)[0];
    for (const char* name : {"loss", "kl", "ce", "grad_norm"})
      EXPECT_NEAR(apart[name].get<double>(), stored[name].get<double>(), 2e-5 * stored[name].get<double>())
          << i << name;
  }
  const Finished plan = run("plan", {"parallel.dp=2", "objective.top_k=8", "parallel.teacher_tp=2"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_SAYS(plan.out, "logits of the teacher");
  // To the bit only where no sum is cut: over its tp sums have other last bits, as over the student's.
  for (const char* cut : {"parallel.teacher_tp=2", "parallel.teacher_pp=2"}) {
    const Finished verify =
        run("verify", {"parallel.dp=2", "objective.top_k=8", cut, "train.numerics=invariant", "--steps=1"});
    EXPECT_EQ(verify.status, 0) << cut << verify.err << verify.out;
    const bool to_the_bit = verify.out.find("to the bit") != verify.out.npos;
    EXPECT_EQ(to_the_bit, cut == std::string("parallel.teacher_pp=2")) << verify.out;
  }
}

TEST_F(Students, ALayoutThatATeacherCannotHaveIsRefusedByName) {
  const auto refused = [&](std::vector<std::string> more, const std::vector<std::string>& parts) {
    more.emplace_back("parallel.dp=4");
    more.emplace_back("train.micro_batch_size=1");
    const Finished f = run("train", more);
    EXPECT_EQ(f.status, 2) << more[0] << f.err;
    for (const std::string& part : parts) EXPECT_SAYS(f.err, part);
    EXPECT_FALSE(fs::exists(dir_ / "run")) << more[0];
  };
  const std::string top = "objective.top_k=8";
  refused({"parallel.teacher_tp=2"}, {"parallel.teacher_tp = 2 has no effect", "objective.top_k = 0"});
  refused({top, "parallel.teacher_tp=3"}, {"tp x pp x cp of the teacher, 3 x 1 x 1, to divide the 4 ranks"});
  refused({top, "parallel.teacher_pp=4"},
          {"which has a layout of its own: parallel.teacher_pp = 4 cannot run", "parallel.teacher_pp = 3"});
  refused({top, "parallel.teacher_ep=2"}, {"parallel.teacher_ep = 2 cannot run: the model has no experts"});
  refused({top, "parallel.teacher_cp=2", "train.seq_length=38"}, {"a multiple of 2 x the teacher's cp = 2 x 2"});
  refused({"objective.top_k=129"}, {"objective.top_k = 129 cannot run", "has 128 tokens"});
  refused({top, "objective.divergence=reverse"},
          {"objective.divergence = \"reverse\" cannot run: objective.top_k = 8"});
  refused({top, "parallel.frozen_shard_size=2"}, {"parallel.frozen_shard_size = 2 cannot run"});
  refused({top, "parallel.recompute=budget", "parallel.memory_budget=1 GiB"},
          {"parallel.recompute = \"budget\" cannot run: with objective.top_k = 8"});
}

// The teacher has three blocks, the student two: a stage for each of three is the teacher's alone.
TEST_F(Students, TheTeacherIsAskedOnALayoutOfItsOwn) {
  const std::string one = (dir_ / "one").string(), cut = (dir_ / "cut").string(), stages = "parallel.pp=3";
  const Finished beside = run("train", {stages});
  EXPECT_NE(beside.status, 0);
  EXPECT_SAYS(beside.err, "parallel.pp");
  ASSERT_EQ(store({"--out", one, "--top-k", "8"}).status, 0);
  const Finished stored = store({"--out", cut, "--top-k", "8", stages});
  ASSERT_EQ(stored.status, 0) << stored.err;
  EXPECT_TRUE(testing::slurp(one) == testing::slurp(cut));
  const Finished train =
      run("train", {"objective.teacher=", "objective.teacher_logits=" + cut, "parallel.tp=2", "train.train_iters=1"});
  EXPECT_EQ(train.status, 0) << train.err;
  const Finished uncut = store({"--out", cut, "--top-k", "8", "--again", "parallel.pp=4"});
  EXPECT_NE(uncut.status, 0);
  EXPECT_SAYS(uncut.err, "parallel.pp = 4");
}

TEST_F(Students, OfStoredLogitsArePlannedVerifiedAndRefusedByName) {
  const std::string file = (dir_ / "top").string();
  ASSERT_EQ(store({"--out", file, "--top-k", "8"}).status, 0);
  const std::vector<std::string> with{"objective.teacher=", "objective.teacher_logits=" + file};
  const auto run_with = [&](const std::string& command, std::vector<std::string> more) {
    more.insert(more.begin(), with.begin(), with.end());
    return run(command, more);
  };
  const Finished plan = run_with("plan", {});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(plan.out.find("frozen models"), plan.out.npos);
  const Finished verify = run_with("verify", {"parallel.tp=2", "parallel.cp=2", "train.precision=bf16", "--steps=2"});
  EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
  EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished f = run_with("train", more);
    EXPECT_NE(f.status, 0) << part;
    EXPECT_SAYS(f.err, part);
    EXPECT_FALSE(fs::exists(dir_ / "run/metrics.jsonl")) << part;
  };
  refused({"objective.temperature=3"}, "it was made with objective.temperature = 2, and the recipe has 3");
  refused({"objective.alpha=0", "objective.temperature=3"}, "it was made with objective.temperature = 2");
  refused({"train.seq_length=20"}, "it was made with train.seq_length = 40, and the recipe has 20");
  refused({"objective.divergence=reverse"}, "objective.divergence = \"reverse\" cannot run");
  refused({"objective.teacher=" + kCase + "/teacher"}, "objective.teacher_logits says what a teacher made of the data");
  refused({"objective.teacher_logits=nowhere"}, "objective.teacher_logits = \"nowhere\" does not exist");
  refused({"train.objective=cross_entropy"}, "objective.teacher_logits");
  const Finished told = testing::weft({"inspect", file, "--json"});
  ASSERT_EQ(told.status, 0) << told.err;
  const nlohmann::json report = nlohmann::json::parse(told.out);
  EXPECT_EQ(report["kind"], "teacher's logits");
  EXPECT_EQ(report["top"], 8);
  EXPECT_EQ(report["temperature"], 2);
  EXPECT_EQ(report["tokens"], 40 * report["samples"].get<int64_t>());
  std::string tokens = testing::slurp(kCase + "/tokens.bin");
  tokens[0] = char(tokens[0] ^ 1);
  testing::spill(dir_ / "other.bin", tokens);
  refused({"data.train=" + (dir_ / "other.bin").string()}, "it was made of other tokens than data.train has now");
  refused({"data.train=" + (dir_ / "other.bin").string()}, "data.packing, data.attn_mask_type and data.valid_fraction");
  const Finished full =
      testing::run({.args = {"teacher-logits", (dir_ / "r.toml").string(), "--out", file + "2"}, .largest_file = 5000});
  EXPECT_SAYS(full.err, "this process may write files of 5000: raise ulimit -f");
  EXPECT_FALSE(fs::exists(file + "2.tmp"));
  const Finished large = store(
      {"--out", file + "2", "train.seq_length=16384", "train.micro_batch_size=65536", "train.global_batch_size=65536"});
  EXPECT_SAYS(large.err, "no memory to store logits: the ranks here take ");
  EXPECT_SAYS(large.err, "a smaller train.micro_batch_size takes less");
  fs::resize_file(file, fs::file_size(file) - 4);
  refused({}, "it is not whole; make it again");
  EXPECT_SAYS(store({"--out", file}).err, "is there already; name another file, or add --again");
  EXPECT_SAYS(store({"--out", kCase, "--again"}).err, "is a folder, which is not replaced");
  EXPECT_SAYS(store({"--out", file, "--again", "--top-k", "129"}).err, "--top-k 129: the teacher has 128 tokens");
  EXPECT_SAYS(store({"--out", file, "--again", "objective.teacher="}).err, "objective.teacher is missing");
}

TEST_F(Students, WhatCannotBeIsRefusedByName) {
  const auto refused = [&](const std::vector<std::string>& more, const std::vector<std::string>& parts) {
    const Finished f = run("train", more);
    EXPECT_EQ(f.status, 2) << more[0] << f.err;
    for (const std::string& part : parts) EXPECT_SAYS(f.err, part);
    EXPECT_FALSE(fs::exists(dir_ / "run")) << more[0];
  };
  refused({"objective.teacher="}, {"objective.teacher is missing", "teacher = \"hf-folder\""});
  refused({"objective.temperature=0"}, {"objective.temperature = 0: expected a number from 0.0001 to 10000"});
  refused({"objective.alpha=1.5"}, {"objective.alpha = 1.5: expected a number"});
  refused({"objective.alpha=0", "objective.temperature=3"},
          {"objective.temperature = 3 has no effect: objective.alpha = 0 leaves the divergence out of the loss"});
  refused({"objective.alpha=0", "objective.divergence=reverse"},
          {"objective.divergence = \"reverse\" has no effect: objective.alpha = 0 leaves"});
  refused({"objective.beta=0.2"}, {"objective.beta = 0.2 has no effect"});
  refused({"train.objective=cross_entropy"}, {"objective.teacher", "has no effect"});
  refused({"train.mtp_loss_coef=0.1"}, {"train.mtp_loss_coef = 0.1 cannot run"});
  refused({"parallel.dp=2", "parallel.frozen_ep=2"},
          {"which is cut as the student is but for its experts: parallel.frozen_ep = 2 cannot run: the model has no "
           "experts; the nearest that works: parallel.frozen_ep = 1"});
  refused({"parallel.dp=2", "parallel.frozen_shard_size=3"},
          {"the nearest that works: parallel.frozen_shard_size = 2"});
  refused({"data.pairs=x.jsonl"}, {"data.pairs = \"x.jsonl\" has no effect", "reads data.train"});
  const Finished nowhere = run("train", {"objective.teacher=nowhere"});
  EXPECT_NE(nowhere.status, 0);
  EXPECT_SAYS(nowhere.err, "objective.teacher = \"nowhere\" does not exist");
  fs::create_directories(dir_ / "runs/checkpoints/step-9");
  fs::create_directories(dir_ / "runs/checkpoints/step-10");
  fs::create_directories(dir_ / "runs/checkpoints/step-11.tmp");
  testing::spill(dir_ / "runs/recipe.toml", "");
  refused(
      {"objective.teacher=" + (dir_ / "runs").string()},
      {"objective.teacher = \"", "is a run's folder: name one of its checkpoints, as ", "runs/checkpoints/step-10"});
  refused({"model.path=" + (dir_ / "runs").string()}, {"model.path = \"", "is a run's folder"});
  const fs::path wide = a_teacher("wide"), heads = a_teacher("heads"), scores = a_teacher("scores"),
                 told = a_teacher("told");
  set(wide / "config.json", {{"vocab_size", 160}});
  refused({"objective.teacher=" + wide.string()}, {"has a vocabulary of 160", "one of 128"});
  set(heads / "config.json", {{"num_attention_heads", 3}, {"num_key_value_heads", 3}});
  refused({"objective.teacher=" + heads.string(), "parallel.tp=4"}, {"which is cut as the student is", "parallel.tp"});
  set(scores / "config.json", {{"architectures", {"LlamaForSequenceClassification"}}, {"num_labels", 1}});
  refused({"objective.teacher=" + scores.string()}, {"is a reward model"});
  set(heads / "config.json", {{"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"num_hidden_layers", 1}});
  refused({"objective.teacher=" + heads.string(), "parallel.pp=2"}, {"which is cut as the student is", "parallel.pp"});
  const fs::path student = dir_ / "student";
  fs::copy(kCase, student, fs::copy_options::recursive);
  testing::spill(told / "tokenizer.json",
                 R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}})");
  testing::spill(student / "tokenizer.json",
                 R"({"model": {"type": "WordLevel", "vocab": {"b": 0, "a": 1}, "unk_token": "a"}})");
  refused({"objective.teacher=" + told.string(), "model.path=" + student.string()},
          {"it has the tokenizer", "the student's is", "ids do not mean the same to both"});
}

// What the data says its ids are is compared too, wherever it says so.
TEST_F(Students, ATokenizerOfTheDataIsComparedWithTheTeachers) {
  const fs::path told = a_teacher("told");
  const std::string words = R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}})";
  testing::spill(told / "tokenizer.json", words);
  testing::spill(dir_ / "texts.txt", "a b a b");
  testing::spill(dir_ / "tokenizer.json", words);
  const std::string teacher = "objective.teacher=" + told.string();
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished f = run("train", more);
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_SAYS(f.err, "it has the tokenizer");
    EXPECT_SAYS(f.err, part);
  };
  refused({teacher, "data.tokenizer=byte"}, "data.tokenizer is \"byte\"");
  refused({teacher, "data.train=" + (dir_ / "texts.txt").string()}, "texts are read as bytes");
  const Finished same = run("train", {teacher, "data.tokenizer=" + (dir_ / "tokenizer.json").string()});
  EXPECT_EQ(same.status, 0) << same.err;
}

}  // namespace
}  // namespace weft
