// A run on a dataset, and the tokenizer with which its text is read afterwards.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 8, "num_hidden_layers": 1,
  "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 8, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";

std::string words(const std::string& last) {
  return R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel",
    "vocab": {"[UNK]": 0, "row": 1, "of": 2, "a": 3, ")" +
         last + R"(": 4}, "unk_token": "[UNK]"}})";
}

// A dataset of words, and a model's folder without a tokenizer.
class Words {
 public:
  Words() {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", kConfig);
    spill(dir_ / "mytok.json", words("file"));
    std::string rows;
    for (int i = 0; i < 80; ++i) rows += "{\"text\": \"row of a file row row file " + std::to_string(i) + "\"}\n";
    spill(dir_ / "in.jsonl", rows);
    spill(dir_ / "held.txt", "row of a file row row file and a row of a file row of a file row of a file");
    spill(dir_ / "p.toml", "[run]\ndir = \"" + at("set") + "\"\n[[source]]\nname = \"s\"\nfiles = [\"" +
                               at("in.jsonl") + "\"]\n[tokens]\ntokenizer = \"" + at("mytok.json") + "\"\n");
    const Finished made = weft({"data", "run", at("p.toml")});
    EXPECT_EQ(made.status, 0) << made.err;
    spill(dir_ / "r.toml", "[model]\npath = \"" + at("model") + "\"\ninit = \"random\"\n[data]\ntrain = \"" +
                               at("set") +
                               "\"\n[train]\nseq_length = 8\nglobal_batch_size = 4\nmicro_batch_size = 4\n"
                               "train_iters = 2\n[checkpoint]\nsave_interval = 1\nkeep_latest = 0\n[run]\ndir = \"" +
                               at("run") + "\"\nbackend = \"ref\"\n");
  }
  Finished train(std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), {"train", at("r.toml")});
    return weft(settings);
  }
  Finished eval(const std::string& model, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"eval", at(model), at("held.txt"), "--seq-length", "4", "--backend", "ref", "--json"});
    return weft(more);
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }

 private:
  TempDir dir_;
};

TEST(DatasetTokenizer, ThatDoesNotFitTheModelIsRefusedBeforeARunFolderIsMade) {
  const Words w;
  std::string config = kConfig;
  spill(w.at("model/config.json"), config.replace(config.find("257"), 3, "4"));
  Finished f = w.train();
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "has 5 ids; the model's vocab_size is 4");
  EXPECT_FALSE(fs::exists(w.at("run")));
  spill(w.at("model/config.json"), kConfig);
  spill(w.at("model/tokenizer.json"), words("other"));
  f = w.train();
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "the model's folder holds another");
  EXPECT_FALSE(fs::exists(w.at("run")));
}

TEST(DatasetTokenizerSlow, GoesAlongIntoCheckpointsAndIsUsedByAll) {
  const Words w;
  Finished f = w.train();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.err.find("warning"), std::string::npos) << f.err;
  for (const char* step : {"1", "2"})
    EXPECT_EQ(slurp(w.at(std::string("run/checkpoints/step-") + step + "/tokenizer.json")), slurp(w.at("mytok.json")));
  const Finished by_hand = w.eval("run", {"--tokenizer", w.at("mytok.json")}), of_run = w.eval("run");
  ASSERT_EQ(of_run.status, 0) << of_run.err;
  EXPECT_EQ(of_run.out, by_hand.out);
  EXPECT_EQ(of_run.err, "");
  // All of it without the dataset's own file: it goes on, and is exported.
  fs::remove_all(w.at("run/checkpoints/step-2"));
  fs::rename(w.at("mytok.json"), w.at("moved.json"));
  f = w.train();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.err.find("warning"), std::string::npos) << f.err;
  fs::rename(w.at("run/checkpoints/step-2"), w.at("exported"));
  fs::remove_all(w.at("exported/weft"));
  EXPECT_EQ(w.eval("exported").out, by_hand.out);
  const Finished text = weft({"generate", w.at("exported"), "--prompt", "row of", "--max-tokens", "8", "--backend",
                              "ref", "--temperature", "0"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("row of")) << text.out;
  EXPECT_EQ(text.err.find("warning"), std::string::npos) << text.err;
}

TEST(DatasetTokenizerSlow, ThatIsGoneIsToldAndNeverReplacedByBytesInSilence) {
  const Words w;
  fs::rename(w.at("mytok.json"), w.at("moved.json"));
  const Finished f = w.train();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "will need --tokenizer");
  const Finished refused = w.eval("run");
  EXPECT_EQ(refused.status, 2);
  EXPECT_SAYS(refused.err, "give another path of it by --tokenizer");
  EXPECT_EQ(w.eval("run", {"--tokenizer", w.at("moved.json")}).status, 0);
  // The folder alone, of which nothing is known.
  fs::rename(w.at("run/checkpoints/step-2"), w.at("exported"));
  fs::remove_all(w.at("exported/weft"));
  const Finished guessed = w.eval("exported");
  EXPECT_EQ(guessed.status, 0);
  EXPECT_SAYS(guessed.err, "text is read as bytes, which is a guess");
}

TEST(DatasetTokenizerSlow, OfAnotherModelIsToldWhenItIsEvaluated) {
  const Words w;
  ASSERT_EQ(w.train().status, 0);
  const auto eval = [&](const std::string& data) {
    return weft({"eval", w.at("run"), w.at(data), "--seq-length", "8", "--backend", "ref"});
  };
  EXPECT_EQ(eval("set/tokens/train-00000").err, "");
  spill(w.at("p2.toml"), "[run]\ndir = \"" + w.at("bytes") + "\"\n[[source]]\nname = \"s\"\nfiles = [\"" +
                             w.at("in.jsonl") + "\"]\n[tokens]\n");
  ASSERT_EQ(weft({"data", "run", w.at("p2.toml")}).status, 0);
  const Finished f = eval("bytes/tokens/train-00000");
  EXPECT_EQ(f.status, 0);
  EXPECT_SAYS(f.err, "was made with tokenizer byte (byte-1), the model's is another");
}

TEST(DatasetTokenizerSlow, ThatIsAnotherThanTheModelsMayBeNamed) {
  const Words w;
  spill(w.at("model/tokenizer.json"), words("other"));
  Finished f = w.train({"data.tokenizer=" + w.at("mytok.json")});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(slurp(w.at("run/checkpoints/step-2/tokenizer.json")), slurp(w.at("mytok.json")));
  f = w.train({"data.tokenizer=" + w.at("model/tokenizer.json"), "run.dir=" + w.at("run2")});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "warning: dataset " + w.at("set") + " was made with tokenizer ");
}

}  // namespace
}  // namespace weft
