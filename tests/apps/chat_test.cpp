// `weft generate --chat`: replies that end, and conversations.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/dialogue.h"
#include "weft/base/error.h"
#include "weft/plan/layout.h"
#include "weft/train/end_tokens.h"
#include "weft/train/train_on_ranks.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::Finished;
using testing::spill;

// Behind "u:Hia:" this model's likeliest tokens are ";", five times 342, and 477.
constexpr int kWord = 342, kEnd = 477;
constexpr const char* kReply = ";Ok Ok Ok Ok Ok ";
constexpr const char* kChatTemplate =
    "{% for m in messages %}{{ m.role[0] + ':' + m.content }}{% if m.role == 'assistant' %}{{ '<end>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}a:{% endif %}";

class Chat : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path golden = fs::path(testing::kSourceDir) / "tests/golden/llama-gqa";
    fs::create_directories(folder_);
    for (const char* file : {"config.json", "model.safetensors"}) fs::copy_file(golden / file, folder_ / file);
    spill(folder_ / "chat_template.jinja", kChatTemplate);
    nlohmann::json json = nlohmann::json::parse(byte_tokenizer_json());
    nlohmann::json& added = json["added_tokens"];
    for (const auto& [id, content] : {std::pair{kWord, "Ok "}, {kEnd, "<end>"}}) {
      added.push_back(added[0]);
      added.back()["id"] = id;
      added.back()["content"] = content;
      added.back()["special"] = id == kEnd;
    }
    spill(folder_ / "tokenizer.json", json.dump());
    config_ = read_hf_config(folder_);
    tokenizer_ = read_tokenizer(folder_);
  }

  struct Said {
    bool all = true;
    std::string out, notes;
  };
  struct Asks {
    std::string lines = {};                 // of a conversation
    std::vector<std::string> prompts = {};  // or each by itself
    int64_t max_tokens = 20, context = 256;
  };
  Said said(const Asks& asks, const Recipe::Parallel& layout = {}) const {
    Recipe recipe;
    recipe.run.backend = BackendKind::ref;
    recipe.run.threads = 1;
    recipe.parallel = layout;
    recipe.parallel.sequence_parallel = false;
    const Machine machine = machine_for(recipe);
    const ChatPrompts prompts = chat();
    std::vector<Tokens> ids;
    for (const std::string& prompt : asks.prompts) ids.push_back(prompts.ids_of({prompt}));
    std::istringstream in(asks.lines);
    std::ostringstream out, notes;
    const ReplySpec replies{.prompts = prompts,
                            .how = {.temperature = 0},
                            .max_tokens = asks.max_tokens,
                            .context = asks.context,
                            .sees = "the model was trained on",
                            .out = out,
                            .notes = notes};
    Said s;
    run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
      TextGenerator::Spec spec{
          .machine = machine, .precision = kF64, .texts = {}, .layout = recipe.parallel, .mesh = mesh};
      spec.by_turns = ids.empty();
      if (spec.by_turns) spec.texts = {{.prompt = 1, .all = asks.context}};
      const weft::Run here =
          prompts_of(int64_t(ids.size()), {mesh.sizes.dp, place_of(mesh.sizes, mesh.world->rank()).dp});
      for (int64_t i = here.first; i < here.end(); ++i) {
        const auto n = int64_t(ids[size_t(i)].size());
        spec.texts.push_back({.prompt = n, .all = std::min(asks.context, n + asks.max_tokens)});
      }
      TextGenerator generator(folder_, spec);
      if (!spec.by_turns) return reply_to_each(generator, replies, ids);
      const bool all = Dialogue(generator, replies, {.in = in}).run();
      if (mesh.world->rank() == 0) s.all = all;
    });
    s.out = out.str();
    s.notes = notes.str();
    return s;
  }
  ChatPrompts chat(const std::string& system = "") const {
    return {{.model = folder_, .text_of = folder_, .chat_template = "", .system = system}, config_, *tokenizer_};
  }
  std::string text_of(const Tokens& ids) const { return tokenizer_->decode(ids, Tokenizer::Specials::kShown); }
  std::string refused(GenerateOptions o) const {
    o.model = folder_.string();
    o.backend = "ref";
    return error_of([&] { run_generate(o); });
  }

  testing::TempDir dir_;
  const fs::path folder_ = dir_ / "model";
  HfConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(Chat, RepliesEndWithTheTurnWhichIsNotShown) {
  const Said s = said({.prompts = {"Hi"}});
  EXPECT_EQ(s.out, std::string(kReply) + "\n");
  EXPECT_EQ(s.notes, "");
  const Said cut = said({.prompts = {"Hi"}, .max_tokens = 3});
  EXPECT_EQ(cut.out, ";Ok Ok \n");
  EXPECT_EQ(cut.notes, "note: the reply is cut after 3 tokens; --max-tokens allows more\n");
}

TEST_F(Chat, RepliesToSeveralPromptsAreThoseToEachOnAnyLayout) {
  const std::string other = said({.prompts = {"Hello"}}).out;
  for (const Recipe::Parallel& layout : {Recipe::Parallel{}, Recipe::Parallel{.dp = 2, .tp = 2}}) {
    const Said s = said({.prompts = {"Hi", "Hello"}}, layout);
    EXPECT_EQ(s.out, std::string(kReply) + "\n" + other);
    EXPECT_EQ(s.notes, "note: reply 2 is cut after 20 tokens; --max-tokens allows more\n");
  }
}

// The second reply is the one to the whole conversation, rendered anew.
TEST_F(Chat, AConversationIsItsRenderingOnAnyLayout) {
  const Tokens whole = chat().ids_of({"Hi", kReply, "Go on"});
  EXPECT_EQ(text_of(whole), "u:Hia:;Ok Ok Ok Ok Ok <end>u:Go ona:");
  EXPECT_EQ(std::count(whole.begin(), whole.end(), kEnd), 1) << "a mark, not five characters";
  EXPECT_EQ(text_of(chat("Be brief.").ids_of({"Hi"})), "s:Be brief.u:Hia:");
  const Said first = said({.lines = "\r\nHi\r\n\n"});
  EXPECT_EQ(first.out, std::string(kReply) + "\n");
  spill(folder_ / "chat_template.jinja",
        std::string("{% if messages | length == 1 %}{{ messages[0].content }}{% else %}") + kChatTemplate +
            "{% endif %}");
  const std::string second = said({.prompts = {text_of(whole)}}).out;
  spill(folder_ / "chat_template.jinja", kChatTemplate);
  for (const Recipe::Parallel& layout : {Recipe::Parallel{}, {.tp = 2, .pp = 2}, {.cp = 2}})
    EXPECT_EQ(said({.lines = "Hi\nGo on"}, layout).out, std::string(kReply) + "\n" + second);
}

TEST_F(Chat, AMessageThatDoesNotFitIsLeftOutAndTheConversationGoesOn) {
  const Said s = said({.lines = "Hi\nThis message is too long\nSo?\n", .max_tokens = 8, .context = 30});
  EXPECT_FALSE(s.all);
  EXPECT_EQ(s.out, said({.lines = "Hi\nSo?\n", .max_tokens = 8, .context = 30}).out);
  EXPECT_SAYS(s.notes,
              "the message is left out: with it the conversation has 41 tokens, and the model was trained on 30 at "
              "once; say it in fewer words, begin a new conversation, or let the model see more by --context\n");
  EXPECT_TRUE(said({.lines = "Hi\n"}).all);
  const Said full = said({.lines = "Hi\n", .context = 9});
  EXPECT_EQ(full.out, ";Ok Ok \n");
  EXPECT_SAYS(full.notes, "is cut: with it the conversation has the 9 tokens that the model was trained on at once");
}

TEST_F(Chat, EndTokensAreThoseOfTheModelsFilesThatAreNoText) {
  EXPECT_EQ(end_tokens_of(folder_, config_, *tokenizer_), std::vector<int32_t>{256});
  config_.json["eos_token_id"] = kEnd;
  spill(folder_ / "generation_config.json", R"({"eos_token_id": [300, 59, 342, 4294967295]})");
  EXPECT_EQ(end_tokens_of(folder_, config_, *tokenizer_), (std::vector<int32_t>{256, 300, kEnd}))
      << "59 and 342 are text of this tokenizer";
  spill(folder_ / "generation_config.json", R"({"eos_token_id": "</s>"})");
  EXPECT_SAYS(error_of([&] { end_tokens_of(folder_, config_, *tokenizer_); }),
              "generation_config.json: \"eos_token_id\": expected a token id, or a list of them, got \"</s>\"");
}

TEST_F(Chat, WhatHasNoEffectIsRefused) {
  const auto with = [](const auto& set) {
    GenerateOptions o;
    set(o);
    return o;
  };
  EXPECT_SAYS(refused(with([](auto& o) { o.system = "x"; })), "--system has no effect without --chat");
  EXPECT_SAYS(refused(with([](auto& o) { o.chat_template = "chatml"; })), "--template has no effect without --chat");
  EXPECT_SAYS(refused(with([](auto& o) { o.chat = o.ids = true; })), "--ids cannot go with --chat");
  EXPECT_SAYS(refused(with([](auto& o) {
                o.chat = true;
                o.prompt_ids = {"1"};
              })),
              "--prompt-ids cannot be a message of --chat: give --prompt, or lines on standard input");
  EXPECT_SAYS(refused(with([](auto& o) {
                o.chat = true;
                o.settings = {"parallel.dp=2"};
              })),
              "parallel.dp = 2 cannot run: a conversation is one text");
  EXPECT_SAYS(
      refused(with([](auto& o) {
        o.chat = true;
        o.context = 8;
        o.prompt = {"Hello"};
      })),
      "--prompt \"Hello\": has 9 tokens as the chat template has it, and --context lets the model see 8 at once");
}

TEST_F(Chat, AModelWithoutATemplateIsRefusedWithWhatToDo) {
  fs::remove(folder_ / "chat_template.jinja");
  GenerateOptions o;
  o.chat = true;
  EXPECT_EQ(refused(o), folder_.string() +
                            ": no chat template: there is none in chat_template.jinja, chat_template.json or "
                            "tokenizer_config.json; give one by --template: a file, or the name of a built-in one "
                            "(chatml, llama-3, mistral, gemma, zephyr, alpaca)");
}

using ChatSlow = Chat;

// As files of other programs: the template and the tokenizer are in them.
TEST_F(ChatSlow, RepliesByTheCommandAloneAlsoOfAGgufFile) {
  const std::string gguf = (dir_ / "m.gguf").string();
  const Finished made = testing::weft({"export", folder_.string(), "--gguf", gguf, "--type", "F32"});
  ASSERT_EQ(made.status, 0) << made.err;
  for (const std::string& model : {folder_.string(), gguf}) {
    const Finished one = testing::weft({"generate", model, "--chat", "--prompt", "Hi", "--temperature", "0",
                                        "--max-tokens", "20", "--backend", "ref"});
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_EQ(one.out, std::string(kReply) + "\n") << model << one.err;
    const std::string command = std::string("printf 'Hi\\nHi\\n' | '") + testing::kProgram + "' generate '" + model +
                                "' --chat --temperature 0 --backend ref --max-tokens 20";
    const Finished two = testing::run({.args = {"-c", command}, .program = "/bin/sh"});
    EXPECT_EQ(two.status, 0) << two.err;
    EXPECT_EQ(two.out.substr(0, one.out.size()), one.out) << two.err;
  }
}

}  // namespace
}  // namespace weft
