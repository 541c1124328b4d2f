// A checkpoint is whole in itself: moved elsewhere, with all that it was made of gone, it generates, is evaluated, and
// tokenizes and renders as the run did.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/models.h"
#include "apps/program.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

constexpr const char* kWords = R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel",
  "vocab": {"[UNK]": 0, "row": 1, "of": 2, "a": 3, "file": 4, "user": 5, "assistant": 6}, "unk_token": "[UNK]"},
  "added_tokens": [{"id": 7, "content": "</s>", "special": true}]})";
constexpr const char* kTemplate = "{% for m in messages %}{{ m.role }} {{ m.content }}{{ eos_token }}\n{% endfor %}";
constexpr const char* kTalk =
    R"({"messages": [{"role": "user", "content": "row of"}, {"role": "assistant", "content": "a file"}]})";

class WholeRun {
 public:
  WholeRun() {
    fs::create_directories(dir_ / "model");
    fs::create_directories(dir_ / "words");
    spill(dir_ / "model/config.json", testing::kOneLayer);
    spill(dir_ / "words/tokenizer.json", kWords);
    spill(dir_ / "words/tokenizer_config.json",
          nlohmann::json{{"eos_token", "</s>"}, {"chat_template", kTemplate}}.dump());
    std::string text;
    for (int i = 0; i < 60; ++i) text += "row of a file row row file\n";
    spill(dir_ / "text.txt", text);
    spill(dir_ / "held.txt", "row of a file row of a file row file a row of a file row of a file");
    spill(dir_ / "ask.jsonl", std::string(kTalk) + "\n");
    spill(dir_ / "strings.jsonl", "\"row of a </s> file\"\n");
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  Finished train(const std::string& data, std::vector<std::string> settings = {}) const {
    std::vector<std::string> args{"train", at("r.toml"), "data.train=" + at(data)};
    spill(dir_ / "r.toml",
          "[model]\npath = \"" + at("model") +
              "\"\ninit = \"random\"\n[train]\nseq_length = 8\nglobal_batch_size = 4\n"
              "micro_batch_size = 4\ntrain_iters = 2\n[checkpoint]\nsave_interval = 1\nkeep_latest = 0\n"
              "[run]\nbackend = \"ref\"\ndir = \"" +
              at("run") + "\"\n");
    args.insert(args.end(), settings.begin(), settings.end());
    return weft(args);
  }
  // The last checkpoint, elsewhere, and nothing of what it was made of.
  std::string moved() const {
    fs::rename(dir_ / "run/checkpoints/step-2", dir_ / "moved");
    for (const char* name : {"run", "model", "words", "text.txt", "set", "in.jsonl", "t.jinja"})
      fs::remove_all(dir_ / name);
    return at("moved");
  }
  // What commands that read standard input print for a file.
  std::string piped(const std::string& file, const std::string& command) const {
    const Finished f =
        testing::run({.args = {"-c", std::string("'") + testing::kProgram + "' " + command + " < '" + at(file) + "'"},
                      .program = "sh"});
    EXPECT_EQ(f.status, 0) << f.err;
    return f.out;
  }
  std::string encoded(const std::string& tokenizer) const {
    return piped("strings.jsonl", "data encode --parse-special --tokenizer '" + tokenizer + "'");
  }
  std::string rendered(const std::string& tokenizer, const std::string& more = "") const {
    return piped("ask.jsonl", "data chat --mask --tokenizer '" + tokenizer + "' " + more);
  }
  std::string loss(const std::string& model) const {
    const Finished f = weft({"eval", model, at("held.txt"), "--backend", "ref", "--json"});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(f.err, "");
    return f.out;
  }
  std::string text(const std::string& model) const {
    const Finished f = weft({"generate", model, "--prompt", "row of", "--max-tokens", "5", "--backend", "ref"});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(f.err.find("guess"), std::string::npos) << f.err;
    return f.out;
  }

 private:
  TempDir dir_;
};

TEST(WholeCheckpoint, HoldsTheTokenizerThatItsTextWasReadWith) {
  const WholeRun p;
  spill(p.at("model/tokenizer.json"), std::string(kWords).replace(std::string(kWords).find("row"), 3, "col"));
  const Finished f = p.train("text.txt", {"data.tokenizer=" + p.at("words")});
  ASSERT_EQ(f.status, 0) << f.err;
  const std::string loss = p.loss(p.at("run")), text = p.text(p.at("run")), ids = p.encoded(p.at("words")),
                    chat = p.rendered(p.at("words"));
  const std::string moved = p.moved();
  EXPECT_EQ(p.loss(moved), loss);
  EXPECT_EQ(p.text(moved), text);
  EXPECT_EQ(p.encoded(moved), ids);
  EXPECT_EQ(p.rendered(moved), chat);
  EXPECT_EQ(slurp(moved + "/tokenizer.json"), kWords);
  EXPECT_SAYS(slurp(moved + "/tokenizer_config.json"), "chat_template");
}

TEST(WholeCheckpoint, OfBytesSaysSoToOtherProgramsToo) {
  const WholeRun p;
  spill(p.at("model/tokenizer.json"), kWords);  // which is not what the text is read with
  const Finished f = p.train("text.txt", {"data.tokenizer=byte"});
  ASSERT_EQ(f.status, 0) << f.err;
  const std::string loss = p.loss(p.at("run")), moved = p.moved();
  EXPECT_EQ(p.loss(moved), loss);
  EXPECT_EQ(p.encoded(moved), p.encoded("byte"));
  fs::remove_all(moved + "/weft");
  EXPECT_EQ(p.encoded(moved), p.encoded("byte"));
  EXPECT_TRUE(p.text(moved).starts_with("row of"));
  // As any program reads it: the same ids.
  auto json = nlohmann::json::parse(slurp(moved + "/tokenizer.json"));
  spill(moved + "/tokenizer.json", json.dump());
  EXPECT_EQ(p.encoded(moved), p.encoded("byte"));
}

TEST(WholeCheckpoint, OfARunWhoseTokenizerIsGoneGoesOn) {
  const WholeRun p;
  ASSERT_EQ(p.train("text.txt", {"data.tokenizer=" + p.at("words")}).status, 0);
  fs::remove_all(p.at("run/checkpoints/step-2"));
  fs::rename(p.at("words"), p.at("elsewhere"));
  const Finished f = p.train("text.txt", {"data.tokenizer=" + p.at("words")});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "the run goes on with its own copy");
  const Finished none = p.train("held.txt", {"data.tokenizer=" + p.at("words"), "run.dir=" + p.at("new")});
  EXPECT_EQ(none.status, 2);
  EXPECT_SAYS(none.err, "cannot be read");
  EXPECT_FALSE(fs::exists(p.at("new")));
  EXPECT_EQ(p.encoded(p.moved()), p.encoded(p.at("elsewhere")));
}

TEST(WholeCheckpoint, OfConversationsHasTheTemplateThatTheyWereRenderedWith) {
  for (const std::string tokenizer : {"byte", "words"}) {
    const WholeRun p;
    const std::string path = tokenizer == "byte" ? tokenizer : p.at(tokenizer);
    spill(p.at("t.jinja"), "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}");
    std::string rows;
    for (int i = 0; i < 40; ++i)
      rows += R"({"messages": [{"role": "user", "content": "row )" + std::to_string(i) +
              R"("}, {"role": "assistant", "content": "a file of row"}]})" + "\n";
    spill(p.at("in.jsonl"), rows);
    if (tokenizer == "words") {  // a template of its own, which the dataset does not have
      fs::copy(p.at("words/tokenizer.json"), p.at("model/tokenizer.json"));
      fs::copy(p.at("words/tokenizer_config.json"), p.at("model/tokenizer_config.json"));
    }
    spill(p.at("p.toml"), "[run]\ndir = \"" + p.at("set") + "\"\n[[source]]\nname = \"s\"\nfiles = [\"" +
                              p.at("in.jsonl") + "\"]\nmessages_key = \"messages\"\n[tokens]\ntokenizer = \"" + path +
                              "\"\nchat_template = \"" + p.at("t.jinja") + "\"\n");
    Finished f = weft({"data", "run", p.at("p.toml")});
    ASSERT_EQ(f.status, 0) << f.err;
    const std::string expected = p.rendered(path, "--template '" + p.at("t.jinja") + "'");
    fs::remove(p.at("t.jinja"));  // the dataset has its own
    f = p.train("set");
    ASSERT_EQ(f.status, 0) << f.err;
    const std::string moved = p.moved();
    EXPECT_EQ(p.rendered(moved), expected) << tokenizer;
    EXPECT_EQ(p.encoded(moved), tokenizer == "byte" ? p.encoded("byte") : "[1,2,3,7,4]\n");
    if (tokenizer == "words") { EXPECT_SAYS(slurp(moved + "/tokenizer_config.json"), "<{{ m.role }}>"); }
  }
}

// --- how far it sees ---

TEST(WholeCheckpointSlow, KnowsTheLengthOfItsTrainingAndGeneratesInAWindowOfIt) {
  const WholeRun p;
  const std::string gpt2 = R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 24, "n_embd": 8, "n_layer": 2,
    "n_head": 2})";
  for (const std::string& config : {std::string(testing::kTwoLayers), gpt2}) {
    spill(p.at("model/config.json"), config);
    fs::remove_all(p.at("run"));
    ASSERT_EQ(p.train("text.txt", {"train.seq_length=16", "optimizer.lr=0.1"}).status, 0);
    const bool rotates = config != gpt2;
    const auto written = nlohmann::json::parse(slurp(p.at("run/checkpoints/step-2/config.json")));
    EXPECT_EQ(rotates ? written["max_position_embeddings"] : written["n_positions"], rotates ? 16 : 24);
    EXPECT_EQ(nlohmann::json::parse(slurp(p.at("run/checkpoints/step-2/weft/state.json")))["context"], 16);
    const auto generated = [&](const std::string& prompt, const std::string& n, std::vector<std::string> more = {}) {
      std::vector<std::string> args{"generate",      p.at("run"), "--prompt-ids", prompt, "--max-tokens", n, "--ids",
                                    "--temperature", "0",         "--backend",    "ref"};
      args.insert(args.end(), more.begin(), more.end());
      return weft(args);
    };
    std::string whole, last;  // 20 ids, and the last 12 of them: what is left of the 20 in a window of 16
    for (int i = 0; i < 20; ++i) whole += (i ? "," : "") + std::to_string(40 + 7 * i);
    for (int i = 8; i < 20; ++i) last += (i > 8 ? "," : "") + std::to_string(40 + 7 * i);
    const Finished a = generated(whole, "40"), b = generated(last, "40");
    EXPECT_EQ(a.status, 0) << a.err;
    EXPECT_EQ(a.out, b.out);
    EXPECT_SAYS(a.err,
                "the model was trained on 16 tokens at once: from token 18 on (the prompt has 20) it sees only the "
                "last 12 to 16");
    EXPECT_EQ(generated(last, "5").err, "");
    const Finished wider = generated(whole, "4", {"--context", "24"});
    EXPECT_EQ(wider.err, "");
    const Finished narrow = generated(whole, "40", {"--context", "1"});  // each token by itself
    EXPECT_EQ(narrow.status, 0) << narrow.err;
    EXPECT_EQ(narrow.out, generated("173", "40", {"--context", "1"}).out);
    const Finished beyond = generated(whole, "40", {"--context", "30"});
    EXPECT_EQ(beyond.status, rotates ? 0 : 2) << beyond.err;
    if (!rotates) { EXPECT_SAYS(beyond.err, "the model has a table of 24 positions"); }
  }
}

}  // namespace
}  // namespace weft
