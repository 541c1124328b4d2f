// The tokenizer of a run on a dataset: what is refused, what is warned of, and what goes along into checkpoints.
#include "weft/train/run_tokenizer.h"
#include "weft/base/hashing.h"

#include "pipeline/pipeline_support.h"
#include "weft/gguf/gguf_head.h"
#include "weft/plan/teacher.h"
#include "weft/tokenize/gguf_vocabulary.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/checkpoint_companions.h"
#include "weft/train/run_data.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::error_of;
using testing::Harness;
using testing::spill;
using testing::TempDir;

// A tokenizer of four words and one more.
std::string words(const std::string& fifth) {
  return R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "one": 1,)"
         R"( "two": 2, "three": 3, ")" +
         fifth + R"(": 9}, "unk_token": "[UNK]"}})";
}
constexpr int64_t kWords = 10;  // the largest id and one

// A model's folder without a tokenizer, and two tokenizers under names of their own.
class Files {
 public:
  Files() {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "mine.json", words("four"));
    spill(dir_ / "other.json", words("five"));
  }
  // The dataset of this name.
  void make(const std::string& name, const std::string& tokenizer) const {
    spill(dir_ / "in.jsonl", "{\"text\": \"one two three four one two three four\"}\n");
    Harness harness;
    harness.run(testing::config_over(dir_ / name, "[\"" + at("in.jsonl") + "\"]",
                                     "[tokens]\ntokenizer = \"" + tokenizer + "\"\n"));
  }
  void give_model(const std::string& tokenizer) const { fs::copy_file(at(tokenizer), at("model/tokenizer.json")); }
  Recipe recipe(const std::vector<std::string>& train, const std::string& tokenizer = "auto") const {
    Recipe r;
    r.model.path = at("model");
    r.run.dir = at("run");
    for (const std::string& entry : train) r.data.train.push_back(at(entry));
    r.data.tokenizer = tokenizer;
    r.train.seq_length = 2;
    return r;
  }
  std::string refused(const Recipe& r) const {
    return error_of([&] { judge_tokenizer(r, kWords + 1000); });
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }

 private:
  TempDir dir_;
};

std::string fingerprint_of(const std::string& path) { return read_tokenizer(path)->fingerprint(); }

TEST(RunTokenizer, ADatasetWithMoreIdsThanTheModelIsRefusedHoweverItIsNamed) {
  const Files f;
  f.make("set", f.at("mine.json"));
  for (const char* entry : {"set", "set/tokens/train-00000", "set/tokens/train-00000.bin"}) {
    const Recipe r = f.recipe({entry});
    const std::string why = error_of([&] { judge_tokenizer(r, kWords - 1); });
    EXPECT_SAYS(why, "which has 10 ids; the model's vocab_size is 9; make the dataset with the model's tokenizer");
    EXPECT_EQ(error_of([&] { judge_tokenizer(r, kWords); }), "");
    ModelSpec model;
    model.vocab_size = kWords - 1;
    EXPECT_EQ(error_of([&] { open_run_data(r, model); }), why);
  }
  Recipe r = f.recipe({"in.jsonl"}, "byte");
  r.data.valid = {f.at("set/tokens/train-00000")};
  EXPECT_SAYS(error_of([&] { judge_tokenizer(r, kWords - 1); }), "has 10 ids");
}

TEST(RunTokenizer, AManifestThatDoesNotSayItsVocabularyIsNotJudgedByIt) {
  const Files f;
  f.make("set", f.at("mine.json"));
  nlohmann::json manifest = open_dataset(f.at("set")).manifest;
  manifest["stages"].back().erase("vocab_size");
  manifest.erase("version");
  manifest["version"] = to_hex(hash128(manifest.dump()));
  spill(f.at("set/manifest.json"), manifest.dump());
  EXPECT_EQ(error_of([&] { judge_tokenizer(f.recipe({"set"}), 1); }), "");
}

TEST(RunTokenizer, ATextIsOfNoDatasetWhereverItLies) {
  const Files f;
  fs::create_directories(f.at("mine/tokens"));
  spill(f.at("mine/manifest.json"), "{\"name\": \"not of weft\"}");
  spill(f.at("mine/tokens/in.txt"), "one two");
  Datasets datasets;
  EXPECT_EQ(error_of([&] { dataset_tokenizers({f.at("mine/tokens/in.txt")}, datasets); }), "");
}

TEST(RunTokenizer, TheModelsOwnIsLeftWhereTheDatasetWasMadeWithIt) {
  const Files f;
  f.make("set", f.at("mine.json"));
  f.give_model("mine.json");
  const RunTokenizer t = judge_tokenizer(f.recipe({"set"}), kWords);
  EXPECT_TRUE(t.warnings.empty());
  EXPECT_EQ(t.path, "");
}

TEST(RunTokenizer, AutoIsRefusedWhereTheModelsIsAnother) {
  const Files f;
  f.make("set", f.at("mine.json"));
  f.make("bytes", "byte");
  f.give_model("other.json");
  EXPECT_SAYS(f.refused(f.recipe({"set"})), fingerprint_of(f.at("mine.json")));
  EXPECT_SAYS(f.refused(f.recipe({"set"})), fingerprint_of(f.at("other.json")));
  EXPECT_SAYS(f.refused(f.recipe({"set/tokens/train-00000"})), "data.tokenizer = \"" + f.at("mine.json") + "\"");
  EXPECT_SAYS(f.refused(f.recipe({"bytes"})), "was made with tokenizer byte (byte-1), and the model's folder holds");
  // A run that has checkpoints goes on: its training does not depend on it.
  fs::create_directories(f.at("run/checkpoints/step-1/weft"));
  spill(f.at("run/checkpoints/step-1/weft/state.json"), "{}");
  EXPECT_EQ(judge_tokenizer(f.recipe({"set"}), kWords).warnings.size(), 1u);
}

TEST(RunTokenizer, AGgufFileGoesWithADatasetOfTheTokenizerThatItWasMadeOf) {
  const Files f;
  f.make("set", "byte");
  f.make("others", f.at("other.json"));
  const auto write = [&](const std::string& fingerprint) {
    GgufVocabulary vocabulary = gguf_vocabulary_of("byte", 257);
    vocabulary.fingerprint = fingerprint;
    GgufHead head;
    write_gguf_vocabulary(vocabulary, head);
    spill(f.at("m.gguf"), head.bytes());
  };
  const std::string bytes = make_byte_tokenizer()->fingerprint();
  Recipe r = f.recipe({"set"});
  r.model.path = r.objective.teacher = f.at("m.gguf");
  write(bytes);
  const RunTokenizer t = judge_tokenizer(r, 257);
  EXPECT_EQ(t.path, "byte") << "checkpoints get the original";
  EXPECT_EQ(t.fingerprint, bytes);
  EXPECT_TRUE(t.warnings.empty());
  require_teacher_tokenizer(r, {bytes}, "the data");
  EXPECT_SAYS(error_of([&] { require_teacher_tokenizer(r, {"another"}, "the data"); }),
              "and the data: ids do not mean");

  r.data.train = {f.at("others")};
  EXPECT_SAYS(f.refused(r), "the model's folder holds another");
  r.data.train = {f.at("set")};
  write("");
  EXPECT_SAYS(f.refused(r), "the model's folder holds another");
}

TEST(RunTokenizer, AutoIsRefusedForDatasetsOfTwoTokenizers) {
  const Files f;
  f.make("set", f.at("mine.json"));
  f.make("set2", f.at("other.json"));
  EXPECT_SAYS(f.refused(f.recipe({"set", "set2"})), "make both with one tokenizer");
  EXPECT_EQ(judge_tokenizer(f.recipe({"set", "set2"}, f.at("mine.json")), kWords).warnings.size(), 1u);
}

TEST(RunTokenizer, WhatIsNamedIsTakenAndToldWhereItIsAnother) {
  const Files f;
  f.make("set", f.at("mine.json"));
  f.give_model("other.json");
  RunTokenizer t = judge_tokenizer(f.recipe({"set"}, f.at("other.json")), kWords);
  ASSERT_EQ(t.warnings.size(), 1u);
  EXPECT_SAYS(t.warnings[0], "data.tokenizer is another: " + f.at("other.json"));
  EXPECT_EQ(t.path, "");
  t = judge_tokenizer(f.recipe({"set"}, f.at("mine.json")), kWords);
  EXPECT_TRUE(t.warnings.empty());
  EXPECT_EQ(t.path, f.at("mine.json"));  // in the checkpoints, not the model's
  t = judge_tokenizer(f.recipe({"set"}, f.at("none.json")), kWords);
  ASSERT_EQ(t.warnings.size(), 1u);
  EXPECT_SAYS(t.warnings[0], "cannot be read");
}

TEST(RunTokenizer, WithoutOneInTheModelsFolderItIsTheDatasets) {
  const Files f;
  f.make("set", f.at("mine.json"));
  f.make("bytes", "byte");
  const Recipe r = f.recipe({"set", "in.jsonl"});
  const RunTokenizer t = judge_tokenizer(r, kWords);
  EXPECT_TRUE(t.warnings.empty());
  EXPECT_EQ(text_tokenizer_of(r), f.at("mine.json"));
  fs::create_directory(f.at("run"));
  EXPECT_EQ(keep_tokenizer(t, f.at("run")), std::nullopt);
  EXPECT_EQ(fingerprint_of(kept_tokenizer(f.at("run"))), fingerprint_of(f.at("mine.json")));
  // Also when the file is gone or another: the run has it.
  spill(f.at("mine.json"), words("six"));
  const RunTokenizer again = judge_tokenizer(r, kWords);
  EXPECT_TRUE(again.warnings.empty());
  EXPECT_EQ(keep_tokenizer(again, f.at("run")), std::nullopt);
  EXPECT_EQ(text_tokenizer_of(r), f.at("run/tokenizer"));
  // Another recipe in a folder that nobody took.
  const RunTokenizer bytes = judge_tokenizer(f.recipe({"bytes"}), 257);
  spill(f.at("run/tokenizer/mine.txt"), "notes");
  EXPECT_THROW(keep_tokenizer(bytes, f.at("run")), FileError);
  EXPECT_TRUE(fs::remove(f.at("run/tokenizer/mine.txt")));
  EXPECT_EQ(keep_tokenizer(bytes, f.at("run")), std::nullopt);
  EXPECT_EQ(fingerprint_of(kept_tokenizer(f.at("run"))), "byte-1");
  EXPECT_EQ(text_tokenizer_of(f.recipe({"in.jsonl"})), "auto");
  EXPECT_EQ(keep_tokenizer({}, f.at("run")), std::nullopt);
  EXPECT_EQ(kept_tokenizer(f.at("run")), "");
  EXPECT_EQ(text_tokenizer_of(f.recipe({"bytes", "in.jsonl"})), "byte");
}

TEST(RunTokenizer, OfTextsIsKeptWhereTheModelsFolderDoesNotHoldAllOfIt) {
  const Files f;
  EXPECT_EQ(judge_tokenizer(f.recipe({"in.jsonl"}), kWords).path, "byte");
  EXPECT_EQ(judge_tokenizer(f.recipe({"some.bin"}), kWords).path, "");  // ids of which nothing is known
  EXPECT_EQ(judge_tokenizer(f.recipe({"some.bin"}, f.at("mine.json")), kWords).path, f.at("mine.json"));
  f.give_model("mine.json");
  EXPECT_EQ(judge_tokenizer(f.recipe({"in.jsonl"}), kWords).path, "");
  EXPECT_EQ(judge_tokenizer(f.recipe({"in.jsonl"}, f.at("mine.json")), kWords).path, "");
  EXPECT_EQ(judge_tokenizer(f.recipe({"in.jsonl"}, f.at("other.json")), kWords).path, f.at("other.json"));
  EXPECT_EQ(judge_tokenizer(f.recipe({"in.jsonl"}, "byte"), kWords).path, "byte");
  spill(f.at("chat_template.jinja"), "{{ messages }}");  // beside mine.json, and not in the model's folder
  EXPECT_EQ(judge_tokenizer(f.recipe({"in.jsonl"}, f.at("mine.json")), kWords).path, f.at("mine.json"));
  EXPECT_SAYS(f.refused(f.recipe({"in.jsonl"}, f.at("none.json"))), "cannot be read");
}

// A start that failed before its first checkpoint may have been of another recipe.
TEST(RunTokenizer, ACopyWithoutACheckpointIsNoRuns) {
  const Files f;
  fs::create_directories(f.at("run"));
  EXPECT_EQ(keep_tokenizer(judge_tokenizer(f.recipe({"in.jsonl"}, f.at("mine.json")), kWords), f.at("run")),
            std::nullopt);
  ASSERT_FALSE(kept_tokenizer(f.at("run")).empty());
  EXPECT_SAYS(f.refused(f.recipe({"in.jsonl"}, f.at("none.json"))), "cannot be read");
  EXPECT_EQ(text_tokenizer_of(f.recipe({"in.jsonl"}, f.at("none.json"))), f.at("none.json"));
}

TEST(RunTokenizer, NamesOfChatTemplatesLeadToNoOtherFolder) {
  const Files f;
  fs::create_directory(f.at("run"));
  RunTokenizer t{.path = "byte", .fingerprint = "byte-1"};
  t.chat_templates = {{"default", "a"}, {"tool_use", "b"}, {"../../x", "c"}, {".hidden", "d"}};
  EXPECT_EQ(keep_tokenizer(t, f.at("run")), std::nullopt);
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(f.at("run"))) files += entry.is_regular_file();
  EXPECT_EQ(files, 3u);
  EXPECT_EQ(testing::slurp(f.at("run/tokenizer/chat_template.jinja")), "a");
  EXPECT_EQ(testing::slurp(f.at("run/tokenizer/additional_chat_templates/tool_use.jinja")), "b");
  EXPECT_EQ(keep_tokenizer(t, f.at("run")), std::nullopt);  // all of these are its own
}

TEST(RunTokenizer, ADatasetsTokenizerThatIsGoneIsToldAtTheStart) {
  const Files f;
  f.make("set", f.at("mine.json"));
  const auto said = [&] {
    const RunTokenizer t = judge_tokenizer(f.recipe({"set"}), kWords);
    EXPECT_EQ(t.path, "");
    return t.warnings.size() == 1 ? t.warnings[0] : "";
  };
  spill(f.at("mine.json"), words("six"));
  EXPECT_SAYS(said(), "mine.json is now another, ");
  fs::remove(f.at("mine.json"));
  EXPECT_SAYS(said(), "mine.json");
  EXPECT_SAYS(said(), "weft eval and weft generate will need --tokenizer");
  EXPECT_SAYS(f.refused(f.recipe({"set", "in.jsonl"})), "there are texts to read: name it in data.tokenizer");
}

TEST(RunTokenizer, OfAModelIsThatOfItsRunOrItsFolderElseAGuessThatIsTold) {
  const Files f;
  f.make("set", f.at("mine.json"));
  f.make("bytes", "byte");
  const fs::path model = f.at("model");
  EXPECT_SAYS(tokenizer_of_model(model, {}, "auto").note, "text is read as bytes, which is a guess");
  EXPECT_EQ(tokenizer_of_model(model, {}, "byte").note, "");
  EXPECT_EQ(tokenizer_of_model(model, f.recipe({"set"}, "x.json"), "auto").name, "x.json");
  EXPECT_EQ(tokenizer_of_model(model, f.recipe({"set"}, "x.json"), "y.json").name, "y.json");
  EXPECT_EQ(tokenizer_of_model(model, f.recipe({"set"}), "auto").name, f.at("mine.json"));
  for (const char* entry : {"bytes", "in.jsonl"}) {  // known to be bytes
    EXPECT_EQ(tokenizer_of_model(model, f.recipe({entry}), "auto").name, "byte");
    EXPECT_EQ(tokenizer_of_model(model, f.recipe({entry}), "auto").note, "");
  }
  EXPECT_NE(tokenizer_of_model(model, f.recipe({"gone"}), "auto").note, "");  // a dataset, or a text?
  fs::remove(f.at("mine.json"));
  EXPECT_SAYS(error_of([&] { tokenizer_of_model(model, f.recipe({"set"}), "auto"); }), "--tokenizer");
  f.give_model("other.json");
  EXPECT_EQ(tokenizer_of_model(model, f.recipe({"set"}), "auto").name, (model / "tokenizer.json").string());
}

TEST(RunTokenizer, ARunOnTokenFilesIsToldThatTheModelsCannotBeRead) {
  const Files f;
  GgufHead head;
  head.text("tokenizer.ggml.model", "bert");
  spill(f.at("m.gguf"), head.bytes());
  Recipe r = f.recipe({"some.bin"});
  r.model.path = f.at("m.gguf");
  const RunTokenizer t = judge_tokenizer(r, kWords);
  ASSERT_EQ(t.warnings.size(), 1u);
  EXPECT_SAYS(t.warnings[0], "not \"bert\"");
  EXPECT_SAYS(t.warnings[0], "checkpoints will have no tokenizer");
  fs::create_directories(f.at("checkpoint"));
  EXPECT_EQ(copy_companions(r.model.path, t.path, f.at("checkpoint")), "");
  EXPECT_TRUE(fs::is_empty(f.at("checkpoint")));
}

}  // namespace
}  // namespace weft
