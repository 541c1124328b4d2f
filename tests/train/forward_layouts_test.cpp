// Models that only run forward, on layouts beside one rank: the loss of held-out text, and text that goes on.
#include <atomic>

#include "token_files.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/ops/backend_around.h"
#include "weft/train/evaluate.h"
#include "weft/train/generate_texts.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using ForwardLayout = Recipe::Parallel;

const std::vector<std::pair<std::string, ForwardLayout>> kForwardLayouts = {
    {"tp 2", {.tp = 2}},
    {"pp 2", {.pp = 2}},
    {"tp 2, pp 2", {.tp = 2, .pp = 2}},
    {"cp 2", {.cp = 2}},
    {"dp 2", {.dp = 2}},
    {"dp 2, tp 2, pp 2", {.dp = 2, .tp = 2, .pp = 2}},
    {"cp 2, tp 2, pp 2", {.tp = 2, .pp = 2, .cp = 2}},
    {"cp 3", {.cp = 3}},
    {"dp 2, ep 2", {.dp = 2, .ep = 2}},
    {"cp 2, ep 2", {.cp = 2, .ep = 2}},
    {"dp 2, cp 2, ep 4, pp 2", {.dp = 2, .pp = 2, .cp = 2, .ep = 4}},
    {"dp 2, ep 2, tp 2", {.dp = 2, .tp = 2, .ep = 2}},
};

fs::path golden_folder(const std::string& name) { return fs::path(testing::kSourceDir) / "tests/golden" / name; }
std::vector<fs::path> with_windows_and_sinks(std::vector<fs::path> models) {
  for (const char* name : {"gpt-oss", "gemma3"}) models.push_back(golden_folder(name));
  return models;
}

// The golden folders, and a model with latent attention whose weights are random.
class ForwardLayouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<testing::TempDir>();
    fs::create_directories(*dir_ / "config");
    testing::spill(*dir_ / "config/config.json", R"({"model_type": "deepseek_v3", "vocab_size": 61, "hidden_size": 24,
      "intermediate_size": 30, "num_hidden_layers": 3, "num_attention_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 8,
      "qk_nope_head_dim": 3, "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": 3,
      "max_position_embeddings": 128, "initializer_range": 0.3})");
    testing::write_raw_tokens(*dir_ / "t.bin", std::vector<int32_t>(40, 7), "uint16");
    const Recipe recipe = parse_recipe(
        "", "test",
        {"model.path=" + (*dir_ / "config").string(), "model.init=random", "data.train=" + (*dir_ / "t.bin").string(),
         "train.seq_length=8", "train.global_batch_size=1", "train.micro_batch_size=1", "train.train_iters=1",
         "run.threads=1", "run.dir=" + (*dir_ / "run").string()});
    testing::train(recipe, machine_for(recipe));
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static fs::path latent() { return *dir_ / "run/checkpoints/step-1"; }
  static std::vector<fs::path> models() {
    return {golden_folder("llama-gqa"), golden_folder("mistral-window"), golden_folder("qwen2-moe"), latent()};
  }
  // Of ranks that keep their threads to themselves: one each.
  static Machine machine_of(const ForwardLayout& layout, BackendKind backend) {
    Machine machine = lending_machine_of(layout, backend);
    machine.of_stages = nullptr;
    return machine;
  }
  static Machine lending_machine_of(const ForwardLayout& layout, BackendKind backend) {
    Recipe recipe;
    recipe.parallel = layout;
    recipe.run.backend = backend;
    recipe.run.threads = 1;
    return machine_for(recipe);
  }
  static MeshSizes sizes_of(const ForwardLayout& layout) {
    Recipe recipe;
    recipe.parallel = layout;
    return mesh_sizes_of(recipe);
  }
  static bool can_run(const fs::path& folder, const ForwardLayout& layout) {
    return testing::error_of<ConfigError>([&] {
             check_forward_layout(layout, read_hf_config(folder).spec, {kF32, 48, 2});
           })
        .empty();
  }

  static std::unique_ptr<testing::TempDir> dir_;
};
std::unique_ptr<testing::TempDir> ForwardLayouts::dir_;

double loss_on(const fs::path& folder, const ForwardLayout& layout, const Machine& machine, Precision precision,
               const MeshSizes& sizes, const fs::path& tokens) {
  DataSpec text;
  text.paths = {tokens.string()};
  text.vocab_size = read_hf_config(folder).spec.vocab_size;
  text.seq_length = 48;
  double loss = 0;
  run_on_threads(sizes, *machine.mover, [&](const ProcessMesh& mesh) {
    Evaluator evaluator(folder, {.machine = machine,
                                 .precision = precision,
                                 .seq_length = 48,
                                 .micro_batch_size = 2,
                                 .layout = layout,
                                 .mesh = mesh});
    const EvalRecord r = evaluator.evaluate(*open_eval_windows(text), 0);
    if (mesh.world->rank() == 0) loss = r.loss;
  });
  return loss;
}

using ForwardLayoutsSlow = ForwardLayouts;

// The text has more windows than two micro-batches hold, so that some ranks of dp have one more than others.
TEST_F(ForwardLayoutsSlow, TheLossOfHeldOutTextIsThatOfOneRank) {
  testing::TempDir dir;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 48 * 5 + 1; ++i) ids.push_back((7 * i * i + 3 * i + 1) % 61);
  testing::write_raw_tokens(dir / "t.bin", ids, "uint16");
  for (const auto& [backend, precision, near] :
       {std::tuple{BackendKind::ref, kF64, 1e-11}, std::tuple{BackendKind::cpu, kF32, 1e-6}}) {
    for (const fs::path& folder : models()) {
      const double one = loss_on(folder, {}, machine_of({}, backend), precision, {}, dir / "t.bin");
      int judged = 0;
      for (auto [name, layout] : kForwardLayouts) {
        if (!can_run(folder, layout)) continue;
        for (const int stage : layout.dp > 1 ? std::vector{0, 3} : std::vector{0}) {
          layout.zero_stage = stage;
          const double many =
              loss_on(folder, layout, machine_of(layout, backend), precision, sizes_of(layout), dir / "t.bin");
          EXPECT_NEAR(many, one, near * one) << folder << " " << name << " ZeRO " << stage;
        }
        ++judged;
      }
      EXPECT_GE(judged, 5) << folder;
    }
  }
}

struct ForwardTexts {
  fs::path folder;
  std::vector<Tokens> prompts;
  int64_t max_tokens;
  int64_t context = 0;
  Sampling how = {.temperature = 0};
  int32_t end_of_text = -1;
  std::optional<int64_t> shares_from = {};
  bool reaches_experts = false;
};

// What one rank of those that hold the same weights was asked for.
TextGenerator::Spec spec_of(const ForwardTexts& t, const ForwardLayout& layout, const Machine& machine,
                            Precision precision, const ProcessMesh& mesh) {
  TextGenerator::Spec spec{
      .machine = machine, .precision = precision, .texts = {}, .context = t.context, .layout = layout, .mesh = mesh};
  spec.layout.sequence_parallel = false;
  spec.shares_from = t.shares_from;
  spec.reaches_experts = t.reaches_experts;
  const RankOf dp{mesh.sizes.dp, place_of(mesh.sizes, mesh.world->rank()).dp};
  for (int64_t rank = 0; rank < dp.size; ++rank) {
    const Run theirs = prompts_of(int64_t(t.prompts.size()), {dp.size, rank});
    std::vector<TextGenerator::Text>& texts = rank == dp.rank ? spec.texts : spec.others.emplace_back();
    for (int64_t i = theirs.first; i < theirs.end(); ++i) {
      const auto n = int64_t(t.prompts[size_t(i)].size());
      texts.push_back({.prompt = n, .all = n + t.max_tokens, .keep_first = 1});
    }
  }
  return spec;
}

// What every rank says.
std::vector<Tokens> continued(const ForwardTexts& t, const ForwardLayout& layout, const Machine& machine,
                              Precision precision, const MeshSizes& sizes) {
  std::vector<std::vector<Tokens>> said(size_t(sizes.world()));
  run_on_threads(sizes, *machine.mover, [&](const ProcessMesh& mesh) {
    TextGenerator generator(t.folder, spec_of(t, layout, machine, precision, mesh));
    const auto ends = [&t](int64_t, int32_t token) {
      return token == t.end_of_text ? TextEnds::before_token : TextEnds::no;
    };
    said[size_t(mesh.world->rank())] =
        generate_texts(generator, {.prompts = t.prompts, .how = t.how, .max_tokens = t.max_tokens, .ends = ends});
  });
  for (const auto& one : said) EXPECT_EQ(one, said[0]);
  return said[0];
}

Tokens forward_text(int32_t seed, size_t n) {
  Tokens ids;
  for (int32_t i = 0; i < int32_t(n); ++i) ids.push_back((seed + 7 * i * i + 3 * i) % 61);
  return ids;
}

// Prompts of unequal lengths; one text ends a page, and with that goes on with another rank of cp.
TEST_F(ForwardLayouts, TheLikeliestTokensAreThoseOfOneRank) {
  for (const fs::path& folder : models()) {
    const ForwardTexts t{folder, {forward_text(1, 57), forward_text(2, 1), forward_text(5, 30)}, 12};
    const std::vector<Tokens> one = continued(t, {}, machine_of({}, BackendKind::cpu), kF32, {});
    for (const Tokens& tokens : one) EXPECT_EQ(tokens.size(), 12u);
    for (const auto& [name, layout] : kForwardLayouts) {
      if (!can_run(folder, layout)) continue;
      EXPECT_EQ(continued(t, layout, machine_of(layout, BackendKind::cpu), kF32, sizes_of(layout)), one)
          << folder << " " << name;
    }
  }
}

// Ranks of cp that share products of the next tokens: of all widths that they divide, in models with biases, experts,
// low-rank projections, tied heads and caps.
TEST_F(ForwardLayouts, SharedProductsGiveTheTokensOfOneRank) {
  for (const fs::path& folder : with_windows_and_sinks(models())) {
    ForwardTexts t{folder, {forward_text(1, 57), forward_text(5, 3)}, 8};
    const std::vector<Tokens> one = continued(t, {}, machine_of({}, BackendKind::cpu), kF32, {});
    t.shares_from = 0;
    for (const auto& [name, layout] : kForwardLayouts) {
      if (layout.cp == 1 || !can_run(folder, layout)) continue;
      EXPECT_EQ(continued(t, layout, machine_of(layout, BackendKind::cpu), kF32, sizes_of(layout)), one)
          << folder << " " << name;
    }
  }
}

// Ranks that read the weights of each other's experts: one expert a rank and more, of a rank's part on tp, with biases,
// latents and experts that all tokens go through.
TEST_F(ForwardLayouts, ExpertsInReachGiveTheTokensOfOneRank) {
  int judged = 0;
  for (const fs::path& folder :
       {golden_folder("qwen2-moe"), golden_folder("gpt-oss"), golden_folder("deepseek-v3-bias")}) {
    for (const auto& [backend, precision] : {std::pair{BackendKind::cpu, kF32}, std::pair{BackendKind::ref, kF64}}) {
      ForwardTexts t{folder, {forward_text(1, 57), forward_text(2, 1), forward_text(5, 30)}, 6};
      const std::vector<Tokens> one = continued(t, {}, machine_of({}, backend), precision, {});
      t.reaches_experts = true;
      for (const ForwardLayout& layout :
           {ForwardLayout{.cp = 2, .ep = 2}, ForwardLayout{.cp = 4, .ep = 4}, ForwardLayout{.tp = 2, .cp = 2, .ep = 2},
            ForwardLayout{.pp = 2, .cp = 2, .ep = 2}}) {
        if (!can_run(folder, layout)) continue;
        for (const auto& shares : {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
          t.shares_from = shares;
          EXPECT_EQ(continued(t, layout, machine_of(layout, backend), precision, sizes_of(layout)), one)
              << folder << " cp " << layout.cp << " ep " << layout.ep << " tp " << layout.tp << " pp " << layout.pp;
          ++judged;
        }
      }
    }
  }
  EXPECT_GE(judged, 40);
}

// A batch is its texts, each alone; also where a text forgets what it began with, and where some end before others.
TEST_F(ForwardLayouts, TextsOfABatchAreThoseOfEachAlone) {
  for (const fs::path& folder : {golden_folder("llama-gqa"), latent()}) {
    ForwardTexts t{folder, {forward_text(1, 3), forward_text(2, 21), forward_text(5, 9)}, 30, 16};
    const Machine machine = machine_of({}, BackendKind::cpu);
    std::vector<Tokens> alone;
    for (const Tokens& prompt : t.prompts) {
      const ForwardTexts single{folder, {prompt}, t.max_tokens, t.context};
      alone.push_back(continued(single, {}, machine, kF32, {})[0]);
    }
    EXPECT_EQ(continued(t, {}, machine, kF32, {}), alone) << folder;
    const ForwardLayout cut{.tp = 2, .cp = 2};
    EXPECT_EQ(continued(t, cut, machine_of(cut, BackendKind::cpu), kF32, sizes_of(cut)), alone) << folder;
  }
}

// Ranks of dp that share experts pass through the model together, with fewer texts at last, or none; and in one of them
// a text forgets while others do not.
TEST_F(ForwardLayouts, RanksThatShareExpertsWaitForEachOthersTexts) {
  ForwardTexts t{golden_folder("qwen2-moe"), {forward_text(1, 3), forward_text(2, 21), forward_text(5, 9)}, 30, 40};
  const Machine machine = machine_of({}, BackendKind::cpu);
  const std::vector<Tokens> unended = continued(t, {}, machine, kF32, {});
  int judged = 0;
  for (const Tokens& ends : unended) {
    t.end_of_text = ends[ends.size() / 2];
    const std::vector<Tokens> one = continued(t, {}, machine, kF32, {});
    judged += one[0].size() != one[2].size();
    for (const ForwardLayout& layout : {ForwardLayout{.dp = 2, .ep = 2}, ForwardLayout{.dp = 3, .ep = 3},
                                        ForwardLayout{.dp = 2, .pp = 2, .cp = 2, .ep = 2}})
      EXPECT_EQ(continued(t, layout, machine_of(layout, BackendKind::cpu), kF32, sizes_of(layout)), one);
  }
  EXPECT_GE(judged, 2);
}

// Chosen at random, by one rank for all.
TEST_F(ForwardLayouts, TokensThatAreDrawnAreThoseOfOneRank) {
  ForwardTexts t{golden_folder("llama-gqa"), {forward_text(1, 5), forward_text(1, 5), forward_text(4, 8)}, 10};
  t.how = {.temperature = 0.8, .top_k = 20, .seed = 3};
  const std::vector<Tokens> one = continued(t, {}, machine_of({}, BackendKind::ref), kF64, {});
  EXPECT_NE(one[0], one[1]) << "each text has choices of its own";
  for (const auto& [name, layout] : kForwardLayouts)
    EXPECT_EQ(continued(t, layout, machine_of(layout, BackendKind::ref), kF64, sizes_of(layout)), one) << name;
}

// Prompts of several portions, which begin and end within one, in models with windows, sinks, caps, experts and
// latents.
const std::vector<std::pair<std::string, ForwardLayout>> kLayoutsOfPortions = {
    {"pp 2", {.pp = 2}}, {"tp 2, pp 2", {.tp = 2, .pp = 2}}, {"dp 2, pp 2", {.dp = 2, .pp = 2}},
    {"pp 3", {.pp = 3}}, {"cp 2, pp 2", {.pp = 2, .cp = 2}}, {"dp 2, ep 2, pp 2", {.dp = 2, .pp = 2, .ep = 2}},
};
std::vector<Tokens> long_prompts() { return {forward_text(1, 150), forward_text(2, 1), forward_text(5, 83)}; }

TEST_F(ForwardLayouts, PromptsThatPassInPortionsGoOnAsThoseOfOneRank) {
  for (const fs::path& folder : with_windows_and_sinks(models())) {
    const ForwardTexts t{folder, long_prompts(), 6};
    const std::vector<Tokens> one = continued(t, {}, machine_of({}, BackendKind::cpu), kF32, {});
    int judged = 0;
    for (const auto& [name, layout] : kLayoutsOfPortions) {
      if (!can_run(folder, layout)) continue;
      EXPECT_EQ(continued(t, layout, machine_of(layout, BackendKind::cpu), kF32, sizes_of(layout)), one)
          << folder << " " << name;
      ++judged;
    }
    EXPECT_GE(judged, 3) << folder;
  }
}

// Ranks of cp cut prompts whole; so does one stage.
TEST_F(ForwardLayouts, PassesTakeTheMemoryThatIsPlanned) {
  for (const fs::path& folder :
       {golden_folder("llama-gqa"), golden_folder("mistral-window"), golden_folder("qwen2-moe"), latent()}) {
    ForwardTexts t{folder, long_prompts(), 2};
    for (const auto& of : {std::pair{ForwardLayout{}, 234},
                           {ForwardLayout{.tp = 2}, 234},
                           {ForwardLayout{.pp = 2}, 64},
                           {ForwardLayout{.tp = 2, .pp = 2}, 64},
                           {ForwardLayout{.pp = 2, .cp = 2}, 234}}) {
      const ForwardLayout& layout = of.first;
      t.shares_from = layout.cp > 1 ? std::optional<int64_t>(0) : std::nullopt;
      const int at_once = of.second;
      const Machine machine = machine_of(layout, BackendKind::cpu);
      run_on_threads(sizes_of(layout), *machine.mover, [&](const ProcessMesh& mesh) {
        TextGenerator generator(t.folder, spec_of(t, layout, machine, kF32, mesh));
        generate_texts(generator, {.prompts = t.prompts, .how = t.how, .max_tokens = t.max_tokens});
        EXPECT_EQ(generator.temporaries_taken(), generator.needs().plan.evaluation) << folder;
        EXPECT_EQ(generator.needs().tokens_at_once, at_once) << folder;
      });
    }
  }
}

// Stages that are threads of one process have the threads of all in turns, and pass prompts whole.
TEST_F(ForwardLayouts, StagesOfOneProcessLendEachOtherTheirThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "OpenMP's teams look like races to the thread sanitizer";
#endif
  const ForwardLayout layout{.tp = 2, .pp = 2};
  const Machine machine = lending_machine_of(layout, BackendKind::cpu);
  ASSERT_TRUE(machine.of_stages);
  EXPECT_EQ(machine.of_stages->threads, 2 * machine.threads);
  Machine of_stages = *machine.of_stages, lends = machine;
  std::atomic<int> made = 0;
  of_stages.make_backend = [&](Arena& workspace) {
    ++made;
    return machine.of_stages->make_backend(workspace);
  };
  lends.of_stages = std::make_shared<const Machine>(of_stages);
  for (const fs::path& folder : with_windows_and_sinks(models())) {
    if (!can_run(folder, layout)) continue;
    const ForwardTexts t{folder, long_prompts(), 3};
    const std::vector<Tokens> one = continued(t, {}, machine_of({}, BackendKind::cpu), kF32, {});
    made = 0;
    EXPECT_EQ(continued(t, layout, lends, kF32, sizes_of(layout)), one) << folder;
    EXPECT_EQ(made, 4) << folder;
    run_on_threads(sizes_of(layout), *machine.mover, [&](const ProcessMesh& mesh) {
      TextGenerator generator(folder, spec_of(t, layout, lends, kF32, mesh));
      generate_texts(generator, {.prompts = t.prompts, .how = t.how, .max_tokens = t.max_tokens});
      EXPECT_EQ(generator.temporaries_taken(), generator.needs().plan.evaluation) << folder;
      EXPECT_EQ(generator.needs().tokens_at_once, 234) << folder;
    });
  }
}

TEST_F(ForwardLayouts, OnlyStagesThatAreThreadsOfOneProcessLendEachOtherTheirs) {
  EXPECT_FALSE(lending_machine_of({.tp = 2}, BackendKind::cpu).of_stages);
  EXPECT_FALSE(lending_machine_of({.pp = 2}, BackendKind::ref).of_stages);
  Recipe recipe;
  recipe.parallel.pp = 2;
  recipe.run.backend = BackendKind::cpu;
  EXPECT_TRUE(machine_for(recipe).of_stages);
  recipe.run.ranks = RanksKind::mpi;
  EXPECT_FALSE(machine_for(recipe).of_stages);
}

// A text whose window is full begins again with what it still sees, in portions too, while its pages lie apart.
TEST_F(ForwardLayouts, TextsThatForgetBeginAgainInPortions) {
  for (const fs::path& folder : {golden_folder("mistral-window"), latent()}) {
    ForwardTexts t{folder, {forward_text(1, 100), forward_text(2, 21), forward_text(5, 160)}, 50, 120};
    const std::vector<Tokens> one = continued(t, {}, machine_of({}, BackendKind::cpu), kF32, {});
    for (const ForwardLayout& layout : {ForwardLayout{.pp = 2}, ForwardLayout{.dp = 3, .pp = 2}})
      EXPECT_EQ(continued(t, layout, machine_of(layout, BackendKind::cpu), kF32, sizes_of(layout)), one) << folder;
  }
}

// Conversations as they grow: the third begins with the second; the fourth and the fifth are others.
std::vector<Tokens> conversations_of(const std::vector<Tokens>& replies) {
  Tokens first = forward_text(1, 21), second = first;
  second.insert(second.end(), replies[0].begin(), replies[0].end());
  for (const int32_t id : forward_text(5, 70)) second.push_back(id);
  Tokens third = second;
  third.insert(third.end(), replies[1].begin(), replies[1].end());
  third.push_back(7);
  return {first, second, third, forward_text(8, 66), forward_text(3, 90)};
}

TEST_F(ForwardLayouts, TextsThatComeByTurnsAreThoseOfTheWholeAtOnce) {
  constexpr int64_t kReply = 6;
  for (const fs::path& folder : with_windows_and_sinks({golden_folder("llama-gqa"), latent()})) {
    std::vector<Tokens> replies(5);
    for (size_t turn = 0; turn < 5; ++turn)
      replies[turn] = continued({folder, {conversations_of(replies)[turn]}, kReply}, {},
                                machine_of({}, BackendKind::cpu), kF32, {})[0];
    for (const ForwardLayout& layout : {ForwardLayout{}, ForwardLayout{.tp = 2, .pp = 2}, ForwardLayout{.cp = 2}}) {
      if (!can_run(folder, layout)) continue;
      const Machine machine = machine_of(layout, BackendKind::cpu);
      run_on_threads(sizes_of(layout), *machine.mover, [&](const ProcessMesh& mesh) {
        TextGenerator::Spec spec = spec_of({folder, {{1}}, kReply}, layout, machine, kF32, mesh);
        spec.texts[0].all = 120;
        spec.by_turns = true;
        TextGenerator generator(folder, spec);
        for (size_t turn = 0; turn < 5; ++turn) {
          const std::vector<Tokens> whole{conversations_of(replies)[turn]};
          GenerateRequest::Times times;
          const Tokens reply = generate_texts(
              generator,
              {.prompts = whole, .how = {.temperature = 0}, .max_tokens = kReply, .times = &times, .stay = true})[0];
          EXPECT_EQ(reply, replies[turn]) << folder << " turn " << turn;
          const int64_t unread[] = {21, 71, 2, 66, 90};  // the last token of a reply was not fed
          EXPECT_EQ(times.fed, unread[turn]) << folder << " turn " << turn;
        }
        EXPECT_EQ(generator.temporaries_taken(), generator.needs().plan.evaluation) << folder;
      });
    }
  }
}

TEST_F(ForwardLayouts, TextsEndWhereTheGeneratorCanTakeNoMore) {
  const Machine machine = machine_of({}, BackendKind::cpu);
  const ProcessMesh alone = single_mesh();
  TextGenerator::Spec spec = spec_of({golden_folder("llama-gqa"), {{1}}, 1}, {}, machine, kF32, alone);
  spec.texts[0].all = 24;
  spec.by_turns = true;
  TextGenerator generator(golden_folder("llama-gqa"), spec);
  const std::vector<Tokens> prompt{forward_text(1, 21)};
  const GenerateRequest request{.prompts = prompt, .how = {.temperature = 0}, .max_tokens = 10, .stay = true};
  EXPECT_EQ(generate_texts(generator, request)[0].size(), 3u);
}

// The logits after each of `more` tokens that follow the prompts, on ranks that have them.
std::vector<double> logits_on(const ForwardTexts& t, const ForwardLayout& layout, const Machine& machine,
                              const MeshSizes& sizes, const Tokens& more) {
  std::vector<double> logits;
  run_on_threads(sizes, *machine.mover, [&](const ProcessMesh& mesh) {
    TextGenerator generator(t.folder, spec_of(t, layout, machine, kF64, mesh));
    std::vector<double> here;
    const auto feed = [&](const std::vector<TextGenerator::More>& fed) {
      const auto got = generator.feed(fed);
      here.insert(here.end(), got.begin(), got.end());
    };
    std::vector<TextGenerator::More> prompts;
    for (size_t i = 0; i < t.prompts.size(); ++i) prompts.push_back({int64_t(i), t.prompts[i]});
    feed(prompts);
    for (const int32_t& id : more) {
      for (TextGenerator::More& m : prompts) m.ids = {&id, 1};
      feed(prompts);
    }
    const bool last = mesh.pp->rank() + 1 == mesh.pp->size();
    EXPECT_EQ(here.empty(), !last);
    if (mesh.world->rank() + 1 == mesh.world->size()) logits = here;
  });
  return logits;
}

void expect_alike(const std::vector<double>& many, const std::vector<double>& one, const std::string& what) {
  ASSERT_EQ(many.size(), one.size()) << what;
  double apart = 0, largest = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    apart = std::max(apart, std::abs(one[i] - many[i]));
    largest = std::max(largest, std::abs(one[i]));
  }
  EXPECT_LE(apart, 1e-11 * largest) << what;
}

// In fp64, over caches that ranks of cp share page by page, a window that is shorter than a page, and latents.
TEST_F(ForwardLayouts, LogitsBehindACacheAreThoseOfOneRank) {
  for (const fs::path& folder : models()) {
    const ForwardTexts t{folder, {forward_text(1, 61), forward_text(3, 4)}, 9};
    const Tokens more = forward_text(11, 8);
    const auto one = logits_on(t, {}, machine_of({}, BackendKind::ref), {}, more);
    for (const auto& [name, layout] : kForwardLayouts) {
      if (!can_run(folder, layout) || layout.dp > 1) continue;
      const auto many = logits_on(t, layout, machine_of(layout, BackendKind::ref), sizes_of(layout), more);
      expect_alike(many, one, folder.string() + " " + name);
    }
  }
}

// Next tokens multiply with rows of the matrix that keys and values are made by, and of its adapter; a prompt does not.
TEST_F(ForwardLayouts, LogitsOfAdaptedLatentsBehindACacheAreThoseOfThePromptsAtOnce) {
  testing::TempDir dir;
  testing::write_raw_tokens(dir / "t.bin", forward_text(3, 40), "uint16");
  for (const std::string kind : {"lora", "qdora"}) {
    const Recipe recipe = parse_recipe(
        "", "test",
        {"model.path=" + latent().string(), "model.init=pretrained", "data.train=" + (dir / "t.bin").string(),
         "adapter.kind=" + kind, "adapter.rank=3", "train.seq_length=8", "train.global_batch_size=2",
         "train.micro_batch_size=1", "train.train_iters=2", "optimizer.lr=0.1", "optimizer.min_lr=0.1",
         "optimizer.lr_warmup_iters=0", "run.threads=1", "run.dir=" + (dir / kind).string()});
    testing::train(recipe, machine_for(recipe));
    const fs::path adapted = dir / kind / "checkpoints/step-2";
    const Tokens prompt = forward_text(1, 21), more = forward_text(11, 3);
    const Machine machine = machine_of({}, BackendKind::ref);
    const auto behind = logits_on({adapted, {prompt}, 4}, {}, machine, {}, more);
    EXPECT_NE(behind, logits_on({latent(), {prompt}, 4}, {}, machine, {}, more)) << "nothing was learned";
    std::vector<double> at_once;
    for (size_t n = 0; n <= more.size(); ++n) {
      Tokens all = prompt;
      all.insert(all.end(), more.begin(), more.begin() + int64_t(n));
      const auto last = logits_on({adapted, {all}, 1}, {}, machine, {}, {});
      at_once.insert(at_once.end(), last.begin(), last.end());
    }
    expect_alike(behind, at_once, kind);
    const ForwardLayout cut{.tp = 2};
    expect_alike(logits_on({adapted, {prompt}, 4}, cut, machine_of(cut, BackendKind::ref), sizes_of(cut), more), behind,
                 kind + " tp 2");
  }
}

TEST_F(ForwardLayouts, LogitsBehindPromptsThatPassInPortionsAreThoseOfOneRank) {
  for (const fs::path& folder : with_windows_and_sinks(models())) {
    const ForwardTexts t{folder, long_prompts(), 3};
    const Tokens more = forward_text(11, 2);
    const auto one = logits_on(t, {}, machine_of({}, BackendKind::ref), {}, more);
    for (const auto& [name, layout] : kLayoutsOfPortions) {
      if (!can_run(folder, layout) || layout.dp > 1) continue;
      const auto many = logits_on(t, layout, machine_of(layout, BackendKind::ref), sizes_of(layout), more);
      expect_alike(many, one, folder.string() + " " + name);
    }
  }
}

// Heads over tp, tokens over cp, layers over pp.
TEST_F(ForwardLayouts, TheCacheIsCutByEachAxis) {
  const ModelSpec model = read_hf_config(golden_folder("llama-gqa")).spec;
  const auto bytes = [&](const ForwardLayout& layout) {
    const Machine machine = machine_of(layout, BackendKind::cpu);
    const ForwardTexts t{golden_folder("llama-gqa"), {forward_text(1, 1)}, 1023};
    return TextGenerator::measure(model, spec_of(t, layout, machine, kF32, dry_mesh(sizes_of(layout), 0))).cache_bytes;
  };
  const int64_t one = bytes({});
  EXPECT_EQ(one, 1024 * 2 * model.num_kv_heads * model.head_dim * model.num_layers * 4);
  for (const ForwardLayout& layout : {ForwardLayout{.tp = 2}, ForwardLayout{.pp = 2}, ForwardLayout{.cp = 2}})
    EXPECT_EQ(bytes(layout), one / 2);
}

TEST(KvPages, LieBehindEachOtherAndAreGivenBack) {
  KvPages pages(6, 3);
  constexpr int64_t kRows = KvPages::kRows;
  pages.expect(0, 3 * kRows);
  pages.append(0, 0, kRows + 1);
  pages.append(1, 0, kRows);  // behind what is left to the first
  for (int64_t i = kRows + 1; i < 3 * kRows; ++i) pages.append(0, i, 1);
  ASSERT_EQ(pages.runs(0).size(), 1u);
  EXPECT_EQ(pages.runs(0)[0].count, 3 * kRows);
  EXPECT_EQ(pages.runs(1)[0].row, 3 * kRows);
  pages.append(1, kRows + 9, 3);  // tokens that another rank does not keep
  EXPECT_EQ(pages.runs(1).back().position, kRows + 9);
  EXPECT_EQ(pages.num_free(), 1);
  pages.forget(0);
  EXPECT_EQ(pages.num_free(), 4);
  pages.append(2, 0, 4 * kRows);
  EXPECT_EQ(pages.runs(2).size(), 2u) << "pages that others have lie between";
  EXPECT_NE(testing::error_of([&] { pages.append(2, 4 * kRows, 1); }).find("no page is free"), std::string::npos);
}

}  // namespace
}  // namespace weft
