// Rows of texts for objectives over completions: each shape that writers give them gives the tokens of supervised
// training, cut where the completion begins; what is wrong is named by file, row and field.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/chat/conversation.h"
#include "weft/data/row_order.h"
#include "weft/train/run_data.h"
#include "weft/train/run_tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::error_of;
using testing::spill;
using testing::TempDir;

constexpr int64_t kModelIds = 300;  // more than a byte tokenizer has

const std::string kUser = "<|im_start|>user\n", kEnd = "<|im_end|>\n", kAssistant = "<|im_start|>assistant\n";

class TextRows : public ::testing::Test {
 protected:
  TextRows() {
    recipe_.model.path = dir_.path().string();
    recipe_.run.dir = (dir_ / "run").string();
    recipe_.train.objective = ObjectiveKind::dpo;
    recipe_.train.seq_length = 400;
    recipe_.train.global_batch_size = 1;
    recipe_.data.tokenizer = "byte";
    recipe_.data.chat_template = "chatml";
  }
  RunData open(const std::string& text, const std::string& name = "rows.jsonl") {
    spill(dir_ / name, text);
    recipe_.data.pairs = recipe_.data.examples = (dir_ / name).string();
    return open_row_data(recipe_, kModelIds);
  }
  // Prompt and completions of a row, bytes as they are and the end of a document as '$'.
  static std::vector<std::string> texts_of(const RunData& data, int64_t row) {
    const IdRows& rows = data.train->rows()->id_rows();
    std::vector<std::string> texts(1 + size_t(rows.num_completions()));
    for (const int32_t id : rows.prompt(row)) texts[0] += id == 256 ? '$' : char(id);
    for (int64_t i = 0; i < rows.num_completions(); ++i)
      for (const int32_t id : rows.completion(row, i)) texts[size_t(1 + i)] += id == 256 ? '$' : char(id);
    return texts;
  }
  std::vector<std::string> only(const std::string& row) {
    const RunData data = open(row);
    EXPECT_EQ(data.train->rows()->id_rows().size(), 1);
    return texts_of(data, 0);
  }
  void refused(const std::string& row, const std::vector<std::string>& parts) {
    const std::string error = error_of<FileError>([&] { open(good_ + "\n" + row); });
    EXPECT_SAYS(error, "rows.jsonl: line 2: ");
    for (const std::string& part : parts) EXPECT_SAYS(error, part);
  }

  TempDir dir_;
  Recipe recipe_;
  std::string good_ = R"({"prompt": "q", "chosen": "yes", "rejected": "no"})";
};

TEST_F(TextRows, OfEveryShapeAreTheSamePair) {
  const std::vector<std::string> pair{kUser + "Why?" + kEnd + kAssistant, "So." + kEnd, "No." + kEnd};
  const std::string q = R"({"role": "user", "content": "Why?"})", a = R"({"role": "assistant", "content": "So."})",
                    b = R"({"role": "assistant", "content": "No."})";
  const std::string human = R"({"from": "human", "value": "Why?"})";
  for (const std::string& row : {
           std::string(R"({"prompt": "Why?", "chosen": "So.", "rejected": "No."})"),
           R"({"prompt": [)" + q + R"(], "chosen": [)" + a + R"(], "rejected": [)" + b + "]}",
           R"({"prompt": [)" + q + R"(], "chosen": "So.", "rejected": "No."})",
           R"({"prompt": "Why?", "chosen": [)" + a + R"(], "rejected": [)" + b + "]}",
           R"({"chosen": [)" + q + "," + a + R"(], "rejected": [)" + q + "," + b + "]}",
           R"({"prompt": "Why?", "chosen": [)" + q + "," + a + R"(], "rejected": [)" + q + "," + b + "]}",
           R"({"chosen_messages": [)" + q + "," + a + R"(], "rejected_messages": [)" + q + "," + b + "]}",
           R"({"messages": [)" + q + R"(], "chosen": )" + a + R"(, "rejected": )" + b + "}",
           R"({"conversations": [)" + human +
               R"(], "chosen": {"from": "gpt", "value": "So."}, "rejected": {"from": "gpt", "value": "No."}})",
           std::string(R"({"instruction": "Why?", "input": "", "output": "x", "chosen": "So.", "rejected": "No."})"),
           std::string(R"({"question": "Why?", "system": "", "chosen": "So.", "rejected": "No."})"),
           std::string(
               R"({"chosen": "\n\nHuman: Why?\n\nAssistant: So.", "rejected": "\n\nHuman: Why?\n\nAssistant: )") +
               R"(No."})",
       })
    EXPECT_EQ(only(row), pair) << row;
  recipe_.train.objective = ObjectiveKind::reward;
  EXPECT_EQ(only(good_)[1], "yes" + kEnd);
}

TEST_F(TextRows, BeginWithTheSystemOfTheRow) {
  for (const char* prompt : {R"("chosen": "\n\nHuman: q\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: b")",
                             R"("prompt": "q", "chosen": "a", "rejected": "b")"})
    EXPECT_EQ(only(R"({"system": "Be kind.", )" + std::string(prompt) + "}")[0],
              "<|im_start|>system\nBe kind." + kEnd + kUser + "q" + kEnd + kAssistant);
}

TEST_F(TextRows, AreCutWhereSupervisedTrainingBeginsToCount) {
  const std::string prompt =
      R"({"role": "system", "content": "Be brief."}, {"role": "user", "content": "1?"}, {"role": "assistant", "content":)"
      R"( "one"}, {"role": "user", "content": "2?"})";
  const RunData data = open(R"({"prompt": [)" + prompt + R"(], "chosen": "two", "rejected": "three"})");
  const auto bytes = make_byte_tokenizer();
  for (const int64_t which : {0, 1}) {
    const std::string said = which == 0 ? "two" : "three";
    // The same with the earlier message of the assistant left out of the mask.
    std::string conversation = "[" + prompt + R"(, {"role": "assistant", "content": ")" + said + "\"}]";
    conversation.insert(conversation.find("\"one\"") + 5, ", \"weight\": 0");
    const auto expected = chat::encode_conversation(chat::read_chat_template("byte", {.file = "chatml", .name = {}}),
                                                    *bytes, chat::read_conversation(conversation, "c"));
    const IdRows& rows = data.train->rows()->id_rows();
    std::vector<int32_t> ids(rows.prompt(0).begin(), rows.prompt(0).end());
    std::vector<uint8_t> mask(ids.size(), 0);
    for (const int32_t id : rows.completion(0, which)) ids.push_back(id), mask.push_back(1);
    EXPECT_EQ(ids, expected.ids);
    EXPECT_EQ(mask, expected.mask);
  }
}

TEST_F(TextRows, WithoutATemplateAreOneTextThatEndsAsDocumentsDo) {
  recipe_.data.chat_template = "none";
  const std::string row = R"({"prompt": "2 + 2 =", "chosen": " 4", "rejected": " five"})";
  EXPECT_EQ(only(row), (std::vector<std::string>{"2 + 2 =", " 4$", " five$"}));
  EXPECT_EQ(only(R"({"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: d e", "rejected":)"
                 R"( "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: d f"})"),
            (std::vector<std::string>{"\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant:", " d e$", " d f$"}));
  recipe_.data.chat_template = "";  // bytes have no template of their own
  EXPECT_EQ(only(row)[1], " 4$");
  EXPECT_SAYS(error_of([&] { open(R"({"instruction": "Why?", "chosen": "So.", "rejected": "No."})"); }),
              "line 1: \"chosen\": has messages, and byte: no chat template");
  EXPECT_SAYS(error_of([&] { open(R"({"instruction": "Why?", "chosen": "So.", "rejected": "No."})"); }),
              "give one by data.chat_template");
}

// Where the tokens of a prompt depend on what follows, those that do are of the completions.
TEST_F(TextRows, TokensOverTheBoundaryAreOfTheCompletions) {
  spill(dir_ / "tokenizer.json", R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme":)"
                                 R"( "never"}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3,)"
                                 R"( "aa": 4}, "merges": ["a b", "a a"]}})");
  recipe_.data.tokenizer = "auto";
  recipe_.data.chat_template = "none";
  const auto ids_of = [&](const std::string& row) {
    const RunData data = open(row);
    const IdRows& rows = data.train->rows()->id_rows();
    std::vector<std::vector<int32_t>> all;
    for (const auto part : {rows.prompt(0), rows.completion(0, 0), rows.completion(0, 1)})
      all.emplace_back(part.begin(), part.end());
    return all;
  };
  using Ids = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(ids_of(R"({"prompt": "ca", "chosen": "bc", "rejected": "c"})"), (Ids{{2}, {3, 2}, {0, 2}}));
  EXPECT_EQ(ids_of(R"({"prompt": "ca", "chosen": "c", "rejected": "bc"})"), (Ids{{2}, {0, 2}, {3, 2}}));
  EXPECT_EQ(ids_of(R"({"prompt": "caa", "chosen": "b", "rejected": "c"})"), (Ids{{2}, {0, 3}, {4, 2}}));
}

TEST_F(TextRows, OfJudgedCompletionsHaveALabelUnderEitherName) {
  recipe_.train.objective = ObjectiveKind::kto;
  const RunData data = open(
      R"({"prompt": "Why?", "completion": "So.", "label": true}
{"prompt": [{"role": "user", "content": "Why?"}], "completion": [{"role": "assistant", "content": "So."}], "label": false}
{"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}], "kto_tag": true}
{"instruction": "Why?", "input": "", "output": "So.", "kto_tag": false}
)");
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(texts_of(data, row), (std::vector<std::string>{kUser + "Why?" + kEnd + kAssistant, "So." + kEnd})) << row;
    EXPECT_EQ(data.train->rows()->id_rows().number(row), row % 2 == 0 ? 1 : 0);
  }
  good_ = R"({"prompt": "q", "completion": "yes", "label": true})";
  refused(R"({"prompt": "q", "completion": "yes"})", {"\"label\": is missing"});
  refused(R"({"prompt": "q", "label": true})", {"\"completion\": is missing"});
  refused(R"({"messages": [{"role": "user", "content": "Why?"}], "label": true})",
          {"\"messages\": message 1: is not the assistant's"});
  EXPECT_SAYS(
      error_of<FileError>([&] { open(R"({"messages": [{"role": "assistant", "content": "hi"}], "label": true})"); }),
      "\"messages\": is no whole conversation");
}

TEST_F(TextRows, OfAnArrayAreThoseOfLinesAndNamedByTheirNumber) {
  const RunData data = open("[\n " + good_ + ",\n " + good_ + "\n]\n", "rows.json");
  EXPECT_EQ(texts_of(data, 1), texts_of(open(good_), 0));
  const std::string error =
      error_of([&] { open("[\n " + good_ + ",\n {\"prompt\": \"q\", \"chosen\": \"a\"}]", "rows.json"); });
  EXPECT_SAYS(error,
              "rows.json: row 2: \"rejected\": is missing; a row has a prompt and chosen and rejected; there are "
              "\"chosen\", \"prompt\"");
  recipe_.data.chat_template = "";
  const RunData ids = open(R"([{"prompt": [1, 2], "chosen": [3], "rejected": [4]}])", "ids.json");
  EXPECT_EQ(ids.train->rows()->id_rows().prompt(0).size(), 2u);
}

TEST_F(TextRows, BadOnesAreRefusedByFileLineAndField) {
  refused(R"({"prompt": "q", "chosen": "a"})", {"\"rejected\": is missing"});
  refused(R"({"prompt": "q", "chosen": "a", "rejected": null})", {"\"rejected\": is missing"});
  refused(R"({"prompt": "q", "chosen": "a", "rejected": " \n"})", {"\"rejected\": is empty", "leave the row out"});
  refused(R"({"prompt": "q", "chosen": "a", "rejected": {"role": "assistant", "content": ""}})",
          {"\"rejected\": is empty: the assistant says nothing"});
  refused(R"({"prompt": "", "chosen": "a", "rejected": "b"})", {"\"prompt\": is empty"});
  refused(R"({"chosen": "a", "rejected": "b"})", {"\"prompt\": is missing"});
  refused(R"({"prompt": "q", "chosen": 7, "rejected": "b"})", {"\"chosen\": expected a text, a message", "got 7"});
  refused(R"({"prompt": "q", "chosen": {"from": "me", "value": "x"}, "rejected": "b"})",
          {"\"chosen\": message 1: \"from\" is \"me\"; it may be human"});
  refused(R"({"prompt": [{"from": "me", "value": "x"}], "chosen": "a", "rejected": "b"})",
          {"\"prompt\": message 1: \"from\" is \"me\""});
  for (const char* field : {"prompt", "chosen", "rejected"}) {
    nlohmann::json row{{"prompt", "q"}, {"chosen", "a"}, {"rejected", "b"}};
    row[field] = nlohmann::json::array();
    refused(row.dump(), {fmt::format("\"{}\": is empty", field)});
  }
  refused(R"({"prompt": "q", "chosen": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],)"
          R"( "rejected": [{"role": "user", "content": "z"}, {"role": "assistant", "content": "y"}]})",
          {"\"chosen\": message 1: is not the assistant's", "one prompt"});
  refused(R"({"prompt": "other", "chosen": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],)"
          R"( "rejected": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "z"}]})",
          {"\"prompt\": is not in the conversation"});
  refused(R"({"prompt": "q", "chosen": [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"},)"
          R"( {"role": "assistant", "content": "z"}], "rejected": "b"})",
          {"\"chosen\": is not one piece"});
  refused(R"({"system": 5, "prompt": "q", "chosen": "a", "rejected": "b"})", {"\"system\": expected a text, got 5"});
  refused(R"({"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": "b", "tools": )"
          R"([{"type": "function", "function": {"name": "f"}}]})",
          {"the template leaves out the \"tools\"", "take a chat template that shows them"});
  refused(R"({"prompt": [1, 2], "chosen": [3], "rejected": [4]})",
          {"has token ids, but line 1 has texts", "files of their own"});
  refused(R"({"prompt": "q", "chosen": "a", "rejected": ")" + std::string(400, 'x') + "\"}",
          {"\"rejected\": with its prompt", "more than train.seq_length = 400", "leave the row out"});
  EXPECT_SAYS(error_of<ConfigError>([&] { open(R"({"prompt": [1, 2], "chosen": [3], "rejected": [4]})"); }),
              "data.chat_template = \"chatml\" has no effect");
  recipe_.data.chat_template = "no-such";
  EXPECT_SAYS(error_of([&] { open(good_); }), "no-such: there is no such file");
}

TEST_F(TextRows, WhoseCompletionsAreAlikeAreCounted) {
  const std::string alike = R"({"prompt": "q", "chosen": "a", "rejected": "a"})";
  EXPECT_EQ(open(good_).warning, "");
  EXPECT_SAYS(open(good_ + "\n" + alike + "\n" + alike).warning,
              "rows.jsonl: in 2 of 3 rows, the first of them line 2, the chosen completion is the rejected one");
}

// What checkpoints get, and what makes the data another.
TEST_F(TextRows, TellTheirTemplateAndAreOtherDataWithAnother) {
  const RunData chatml = open(good_);
  EXPECT_EQ(chatml.row_templates->count("default"), 1u);
  const RunTokenizer kept = judge_tokenizer(recipe_, kModelIds, chatml.row_templates);
  EXPECT_EQ(kept.path, "byte");
  EXPECT_EQ(kept.chat_templates, *chatml.row_templates);
  recipe_.data.chat_template = "none";
  const RunData none = open(good_);
  EXPECT_TRUE(none.row_templates->empty());
  EXPECT_NE(none.train->fingerprint(), chatml.train->fingerprint());
  recipe_.data.chat_template = "";
  EXPECT_FALSE(open(R"({"prompt": [1, 2], "chosen": [3], "rejected": [4]})").row_templates);
}

TEST_F(TextRows, OfRealFilesAreReadWhole) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/preference";
  if (!fs::exists(folder)) GTEST_SKIP() << "needs data/preference in the folder 'shared' beside the checkout";
  recipe_.train.seq_length = 16384;
  const auto read = [&](const char* name) {
    recipe_.data.pairs = (folder / name).string();
    return open_row_data(recipe_, kModelIds);
  };
  const RunData sharegpt = read("dpo_en_demo.json"), alpaca = read("rasbt_instruction_preference.json"),
                v1 = read("v1_dpo_demo.jsonl");
  EXPECT_EQ(sharegpt.train->rows()->id_rows().size(), 300);
  EXPECT_EQ(texts_of(sharegpt, 0)[0].substr(0, kUser.size() + 3), kUser + "Hi!");
  ASSERT_EQ(alpaca.train->rows()->id_rows().size(), 1100);
  EXPECT_EQ(texts_of(alpaca, 1),
            (std::vector<std::string>{
                kUser + "Edit the following sentence for grammar.\n\nHe go to the park every day." + kEnd + kAssistant,
                "He goes to the park every day." + kEnd, "He goes to the stupid park every single day." + kEnd}));
  EXPECT_SAYS(alpaca.warning, "in 6 of 1100 rows");
  ASSERT_EQ(v1.train->rows()->id_rows().size(), 10);
  EXPECT_EQ(texts_of(v1, 1)[1], "D: considerate" + kEnd);
}

}  // namespace
}  // namespace weft
