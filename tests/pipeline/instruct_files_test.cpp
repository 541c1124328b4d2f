// Instruction data that others published, through the pipeline of `weft data run`: every row is there, and of each what
// the assistant says counts, and nothing else.
#include <algorithm>

#include "pipeline/pipeline_support.h"
#include "weft/data/token_source.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using InstructRow = nlohmann::json;

// A document of the token file: its bytes, and those of each run of targets that count.
struct MaskedText {
  std::string text;
  std::vector<std::string> counted;
};

class InstructFiles : public ::testing::Test {
 protected:
  void SetUp() override { WEFT_NEEDS_SHARED(); }

  static fs::path file(const std::string& name) { return testing::shared_dir() / "data/instruct" / name; }
  // Into one file, where documents are in the order of the rows.
  void encode(const std::string& name, const std::string& source, const std::string& chat_template) {
    testing::Harness().run(testing::config_of("[run]\ndir = \"" + (dir_ / "set").string() +
                                              "\"\n[[source]]\nname = \"s\"\nfiles = [\"" + file(name).string() +
                                              "\"]\n" + source + "[tokens]\ntokenizer = \"byte\"\nchat_template = \"" +
                                              chat_template + "\"\n"));
    EXPECT_TRUE(open_stage(dir_ / "set/read").counts.dropped.empty());
    const nlohmann::json manifest = open_stage(dir_ / "set/tokens").manifest;
    EXPECT_TRUE(manifest["counts"]["dropped"].empty()) << manifest["counts"];
    ASSERT_EQ(manifest["files"].size(), 1u);
    said_counted_ = manifest["files"][0]["counted"];
    read(dir_ / "set/tokens/train-00000");
  }
  int64_t bytes_counted() const {
    int64_t bytes = 0;
    for (const MaskedText& d : documents_)
      for (const std::string& part : d.counted) bytes += std::ssize(part);
    return bytes;
  }

  std::vector<MaskedText> documents_;
  int64_t said_counted_ = 0;  // by the manifest

 private:
  void read(const fs::path& prefix) {
    const auto source = open_megatron_tokens(prefix, 257);
    const std::string mask = testing::slurp(prefix.string() + ".mask");
    ASSERT_EQ(std::ssize(mask), source->size());
    for (int64_t d = 0; d < source->num_documents(); ++d) {
      const int64_t begin = source->document_begin(d), end = source->document_begin(d + 1);
      std::vector<int32_t> ids(size_t(end - begin), 0);
      source->read(begin, ids);
      MaskedText& document = documents_.emplace_back();
      for (size_t i = 0; i < ids.size(); ++i) {
        document.text += char(ids[i]);
        const size_t at = size_t(begin) + i;  // a target stands one position earlier
        if (i == 0 || mask[at - 1] == 0) continue;
        if (i == 1 || mask[at - 2] == 0) document.counted.emplace_back();
        document.counted.back() += char(ids[i]);
      }
    }
  }

  testing::TempDir dir_;
};

constexpr const char* kTurnEnd = "<|im_end|>\n";

std::string turn(const std::string& role, const std::string& said) {
  return "<|im_start|>" + role + "\n" + said + kTurnEnd;
}

int64_t bytes_with_end(const nlohmann::json& said) {
  return std::ssize(said.get<std::string>()) + std::ssize(std::string(kTurnEnd));
}

TEST_F(InstructFiles, OfAlpacaCountWhereTheyAnswer) {
  encode("alpaca_en_demo.json",
         R"(prompt_key = "{instruction}\n\n{input?}"
completion_key = "output"
)",
         "chatml");
  const auto rows = nlohmann::json::parse(testing::slurp(file("alpaca_en_demo.json")));
  ASSERT_EQ(documents_.size(), rows.size());
  int64_t expected = 0;
  for (const InstructRow& row : rows) expected += bytes_with_end(row["output"]);
  EXPECT_EQ(bytes_counted(), expected);
  EXPECT_EQ(said_counted_, expected);

  const std::string short_answer = "The car accelerated rapidly.";  // the second row, without an input
  EXPECT_EQ(documents_[1].text,
            turn("user", "Transform the following sentence using a synonym: The car sped quickly.") +
                turn("assistant", short_answer));
  EXPECT_EQ(documents_[1].counted, std::vector<std::string>{short_answer + kTurnEnd});
  EXPECT_TRUE(documents_[5].text.starts_with(turn(
      "user", "Given the parameters of a triangle, find out its perimeter.\n\nSide 1 = 4\nSide 2 = 6\nSide 3 = 8")))
      << documents_[5].text;
}

// Contents in parts, and a weight with each message.
TEST_F(InstructFiles, OfWeighedMessagesCountWhereTheWeightIsOne) {
  encode("v1_sft_demo.jsonl", "messages_key = \"messages\"\n", "chatml");
  const std::vector<std::string> lines = testing::lines_of(testing::slurp(file("v1_sft_demo.jsonl")));
  ASSERT_EQ(documents_.size(), lines.size());
  int64_t expected = 0;
  for (const std::string& line : lines) {
    const InstructRow row = nlohmann::json::parse(line);
    for (const nlohmann::json& message : row["messages"])
      if (message["loss_weight"] == 1.0) expected += bytes_with_end(message["content"][0]["value"]);
  }
  EXPECT_EQ(bytes_counted(), expected);
  EXPECT_EQ(said_counted_, expected);

  const std::string answer = "In the quiet corners of my mind, I sit alone with thoughts entwined.";
  EXPECT_EQ(documents_[100].text,
            turn("user", "Generate an opening sentence for a poem on the theme of 'loneliness'.") +
                turn("assistant", answer));
  EXPECT_EQ(documents_[100].counted, std::vector<std::string>{answer + kTurnEnd});
}

// ShareGPT's, with tools as a text: calls count, what tools answer does not.
TEST_F(InstructFiles, OfToolsCountCallsAndAnswersToTheUser) {
  encode("glaive_toolcall_en_demo.json", "messages_key = \"conversations\"\n",
         (fs::path(testing::kSourceDir) / "examples/data/tools.jinja").string());
  const auto rows = nlohmann::json::parse(testing::slurp(file("glaive_toolcall_en_demo.json")));
  ASSERT_EQ(documents_.size(), rows.size());
  const std::string call_begin = "<tool_call>", call_end = "</tool_call>";
  int64_t expected = 0;
  for (const InstructRow& row : rows) {
    for (const nlohmann::json& message : row["conversations"]) {
      const bool calls = message["from"] == "function_call";
      if (calls) expected += std::ssize(call_begin + call_end);
      if (calls || message["from"] == "gpt") expected += bytes_with_end(message["value"]);
    }
  }
  EXPECT_EQ(bytes_counted(), expected);
  EXPECT_EQ(said_counted_, expected);

  const std::string call =
      call_begin + R"({"name": "calculate_age", "arguments": {"birthdate": "1990-05-15"}})" + call_end;
  const std::string answer = "Based on the birthdate you provided, you are 31 years old today.";
  const MaskedText& birthday = documents_[203];
  EXPECT_TRUE(birthday.text.starts_with("<|im_start|>tools\n{\"name\": \"calculate_age\", \"description\": "))
      << birthday.text;
  EXPECT_TRUE(
      birthday.text.ends_with(turn("user", "Hi, I was born on 1990-05-15. Can you tell me how old I am today?") +
                              turn("assistant", call) + turn("tool", R"({"age": 31})") + turn("assistant", answer)))
      << birthday.text;
  EXPECT_EQ(birthday.counted, (std::vector<std::string>{call + kTurnEnd, answer + kTurnEnd}));
}

}  // namespace
}  // namespace weft
