// Pairs of texts by the commands alone: the run on their token ids, with a tokenizer and a template in its checkpoints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;

// The ids of bytes.
nlohmann::json ids_of(const std::string& text) {
  nlohmann::json ids = nlohmann::json::array();
  for (const char c : text) ids.push_back(int(uint8_t(c)));
  return ids;
}

class TextPairs : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kOneLayer);
    const char* const kSaid[][3] = {{"1?", "one", "no"}, {"2?", "two", "why"}, {"3?", "three", "4"}};
    for (const auto& [question, chosen, rejected] : kSaid) {
      texts_ += nlohmann::json{{"prompt", question}, {"chosen", chosen}, {"rejected", rejected}}.dump() + "\n";
      const auto turn = [](const std::string& role) { return "<|im_start|>" + role + "\n"; };
      const std::string end = "<|im_end|>\n";
      ids_ += nlohmann::json{{"prompt", ids_of(turn("user") + question + end + turn("assistant"))},
                             {"chosen", ids_of(chosen + end)},
                             {"rejected", ids_of(rejected + end)}}
                  .dump() +
              "\n";
    }
    spill(dir_ / "texts.jsonl", texts_);
    spill(dir_ / "ids.jsonl", ids_);
    spill(dir_ / "r.toml", "[model]\npath = \"" + at("model") +
                               "\"\ninit = \"random\"\n[data]\nshuffle = false\n[train]\nobjective = \"dpo\"\n"
                               "seq_length = 80\nglobal_batch_size = 2\nmicro_batch_size = 1\ntrain_iters = 3\n"
                               "[run]\nbackend = \"ref\"\nthreads = 1\n");
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  Finished run(const std::string& command, const std::string& rows, const std::vector<std::string>& more) const {
    std::vector<std::string> all{command, at("r.toml"), "data.pairs=" + at(rows), "run.dir=" + at("run-" + rows)};
    all.insert(all.end(), more.begin(), more.end());
    return testing::weft(all);
  }
  TempDir dir_;
  std::string texts_, ids_;
};

TEST_F(TextPairs, AreTrainedAsTheirTokenIdsAreOnAnyLayout) {
  for (const std::string layout : {"parallel.dp=1", "parallel.dp=2"}) {
    const Finished texts = run("train", "texts.jsonl", {"data.chat_template=chatml", layout}),
                   ids = run("train", "ids.jsonl", {layout});
    ASSERT_EQ(texts.status, 0) << texts.err;
    ASSERT_EQ(ids.status, 0) << ids.err;
    const std::string weights = "checkpoints/step-3/model.safetensors", run = at("run-texts.jsonl") + "/";
    EXPECT_TRUE(slurp(run + weights) == slurp(at("run-ids.jsonl") + "/" + weights)) << layout;
    EXPECT_SAYS(slurp(run + "checkpoints/step-3/chat_template.jinja"), "<|im_start|>");
    EXPECT_TRUE(fs::exists(run + "checkpoints/step-3/tokenizer.json"));
    EXPECT_FALSE(fs::exists(at("run-ids.jsonl") + "/checkpoints/step-3/chat_template.jinja"));
    for (const char* rows : {"texts.jsonl", "ids.jsonl"}) fs::remove_all(at(std::string("run-") + rows));
  }
}

TEST_F(TextPairs, ThatAreWrongAreNamedBeforeThereIsARun) {
  spill(dir_ / "bad.jsonl", texts_ + R"({"prompt": "q", "chosen": "a", "rejected": ""})" + "\n");
  const Finished bad = run("train", "bad.jsonl", {"data.chat_template=chatml"});
  EXPECT_NE(bad.status, 0);
  EXPECT_SAYS(bad.err, "bad.jsonl: line 4: \"rejected\": is empty");
  EXPECT_EQ(bad.err.find("run folder"), std::string::npos) << "the header of a run: " << bad.err;
  EXPECT_FALSE(fs::exists(at("run-bad.jsonl")));
  const Finished small = run("train", "texts.jsonl", {"data.chat_template=chatml", "train.seq_length=40"});
  EXPECT_NE(small.status, 0);
  EXPECT_SAYS(small.err, "texts.jsonl: line 1: \"chosen\": with its prompt");
  const Finished idle = run("train", "ids.jsonl", {"data.chat_template=chatml"});
  EXPECT_EQ(idle.status, 2);
  EXPECT_SAYS(idle.err, "data.chat_template = \"chatml\" has no effect: ");
}

TEST_F(TextPairs, GoOnWithTheirTemplateAlone) {
  const std::string file = "data.chat_template=" + at("chat.jinja");
  spill(dir_ / "chat.jinja", "{% for m in messages %}{{ m.role + ': ' + m.content + ' ' }}{% endfor %}");
  const Finished first = run("train", "texts.jsonl", {file, "train.train_iters=1"});
  ASSERT_EQ(first.status, 0) << first.err;
  spill(dir_ / "chat.jinja", "{% for m in messages %}{{ m.role + '> ' + m.content + ' ' }}{% endfor %}");
  const Finished f = run("train", "texts.jsonl", {file});
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err,
              "step-1: the chat template " + at("chat.jinja") + " has changed since this checkpoint was written");
}

TEST_F(TextPairs, ArePlannedAndVerified) {
  const Finished plan =
      run("plan", "texts.jsonl", {"data.chat_template=chatml", "train.train_iters=0", "train.epochs=2"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_SAYS(plan.out, "train.epochs = 2: 3 steps");
  const Finished verify = run("verify", "texts.jsonl", {"data.chat_template=chatml", "parallel.dp=2", "--steps=1"});
  EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
}

}  // namespace
}  // namespace weft
