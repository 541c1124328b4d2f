// Runs that are islands: several of them in this process, with a hub between.
#include <future>
#include <thread>

#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/islands/island_hub.h"
#include "weft/train/joined_island.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kSecretOfTests = "a secret of sixteen bytes";

Words both_of(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Of four steps, whose weights are exchanged after every second one.
Words settings_of(const fs::path& run, const Words& more) {
  const fs::path model = fs::path(testing::kSourceDir) / "tests/golden/llama3-rope-tied";
  return testing::golden_settings(
      model, run,
      both_of({"train.seq_length=16", "train.train_iters=4", "train.global_batch_size=2", "train.micro_batch_size=1",
               "optimizer.lr_warmup_iters=1", "train.log_grad_norms=false", "checkpoint.save_interval=2",
               "checkpoint.keep_latest=0", "run.threads=1", "run.backend=cpu"},
              more));
}

Words with_islands(int64_t count, const Words& more) {
  return both_of({fmt::format("islands.count={}", count), "islands.address=127.0.0.1:1", "islands.sync_every=2",
                  "islands.outer_lr=1", "islands.outer_momentum=0", "islands.timeout_seconds=20"},
                 more);
}

// A hub of the recipe's islands.
class Hub {
 public:
  explicit Hub(const Words& settings, const std::string& address = "127.0.0.1:0") {
    const Words all = settings_of("unused", settings);
    const Recipe recipe = parse_recipe("", "islands", all);
    const Islands islands = parse_islands("", "islands", all);
    const OuterLayout layout(prepare_run(recipe, 0).model, islands.fragments);
    hub_.emplace(IslandHub::Spec{.address = address,
                                 .secret = kSecretOfTests,
                                 .count = islands.count,
                                 .settings = shared_settings(islands, recipe),
                                 .model = model_text(layout),
                                 .outer = outer_spec_of(islands),
                                 .sizes = layout.sizes(),
                                 .timeout_s = islands.timeout_seconds});
    served_ = std::async(std::launch::async, [this] { return hub_->serve(stop_); });
  }
  ~Hub() { stop_ = true; }
  std::string address() const { return fmt::format("127.0.0.1:{}", hub_->port()); }
  int64_t rounds() const { return hub_->rounds(); }
  bool all_are_done() {
    stop_ = served_.wait_for(std::chrono::seconds(60)) != std::future_status::ready;  // a failure ends, too
    return served_.get();
  }

 private:
  std::atomic<bool> stop_{false};
  std::optional<IslandHub> hub_;
  std::future<bool> served_;
};

bool train_island(const fs::path& run, const std::string& hub, int64_t number, const Words& settings) {
  const Words all =
      settings_of(run, both_of(settings, {"islands.address=" + hub, fmt::format("islands.number={}", number)}));
  const Recipe recipe = parse_recipe("", "islands", all);
  const IslandSetup setup{.settings = parse_islands("", "islands", all), .secret = kSecretOfTests};
  const Machine machine = testing::unmeasured(machine_for(recipe));
  const std::atomic<bool> stop{false};
  const RunLock lock = claim_run_folder(recipe, setup.settings);
  const Descriptor notes(::open((run / "notes").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  return train_on_ranks({.recipe = recipe, .machine = machine, .stop = stop, .terminal_fd = notes, .islands = &setup});
}

// Islands 0 .. n - 1 at once, in DIR/0, DIR/1 ... with a new hub.
void train_islands(const fs::path& dir, int64_t n, const Words& settings) {
  Hub hub(settings);
  std::vector<std::future<bool>> all;
  for (int64_t k = 0; k < n; ++k)
    all.push_back(std::async(std::launch::async,
                             [&, k] { return train_island(dir / std::to_string(k), hub.address(), k, settings); }));
  for (auto& one : all) EXPECT_TRUE(one.get());
  EXPECT_TRUE(hub.all_are_done());
}

void train_plain(const fs::path& run, const Words& more) {
  const Recipe recipe = parse_recipe("", "islands", settings_of(run, more));
  testing::train(recipe, machine_for(recipe));
}

std::string file_at(const fs::path& run, int64_t step, const char* file) {
  const std::string bytes = testing::slurp(run / fmt::format("checkpoints/step-{}", step) / file);
  EXPECT_FALSE(bytes.empty()) << run << " " << step << " " << file;
  return bytes;
}

constexpr const char *kWeights = "model.safetensors", *kMoments = "weft/optimizer.safetensors",
                     *kOuterWeights = "weft/outer.safetensors";

void expect_same_files(const fs::path& a, const fs::path& b, int64_t step, const std::vector<const char*>& files) {
  for (const char* file : files) EXPECT_TRUE(file_at(a, step, file) == file_at(b, step, file)) << step << " " << file;
}

// By itself, an island's mean is what it has.
void expect_plain(const Words& layout, const Words& islands = {}) {
  SCOPED_TRACE(fmt::format("{} {}", fmt::join(layout, " "), fmt::join(islands, " ")));
  testing::TempDir dir;
  train_plain(dir / "plain", layout);
  train_islands(dir.path(), 1, both_of(with_islands(1, islands), layout));
  expect_same_files(dir / "plain", dir / "0", 2, {kWeights, kMoments});
  expect_same_files(dir / "plain", dir / "0", 4, {kWeights, kMoments});
}

TEST(Islands, OneThatTakesTheMeanIsThePlainRunToTheBit) { expect_plain({}); }
TEST(Islands, OneOnAnyLayoutIsThePlainRunToTheBit) {
  expect_plain({"parallel.dp=2", "parallel.zero_stage=3", "train.precision=bf16"});
  expect_plain({"parallel.pp=2", "parallel.tp=2"});
}
TEST(Islands, OneThatExchangesFragmentsInTurnIsThePlainRunToTheBit) { expect_plain({}, {"islands.fragments=2"}); }

std::vector<float> weights_in(const fs::path& run, int64_t step) {
  const SafetensorsFile file =
      SafetensorsFile::open(run / fmt::format("checkpoints/step-{}", step) / "model.safetensors");
  std::vector<float> all;
  for (const SafetensorsEntry& entry : file.tensors()) {
    const auto bytes = file.bytes(entry);
    all.resize(all.size() + bytes.size() / sizeof(float));
    std::memcpy(&*all.end() - bytes.size() / sizeof(float), bytes.data(), bytes.size());
  }
  return all;
}

// With an exchange after each step of SGD, the mean of w - lr g_k is w - lr (mean of g_k): the islands' batches
// together are the batch of synchronous training. In f32 each of four steps rounds a weight (at most 4 of them in size)
// three times by 2^-24 of it, and its gradients, whose sums have another order, move it by lr x 1e-5 at most.
TEST(Islands, ThatExchangeAfterEachStepOfSgdAreSynchronousTraining) {
  const Words sgd{"optimizer.name=sgd",          "optimizer.momentum=0", "optimizer.weight_decay=0",
                  "optimizer.clip_grad=0",       "optimizer.lr=0.2",     "optimizer.lr_decay_style=constant",
                  "optimizer.lr_warmup_iters=0", "optimizer.min_lr=0"};
  testing::TempDir dir;
  train_plain(dir / "plain", both_of(sgd, {"train.global_batch_size=4"}));
  train_islands(dir.path(), 2, both_of(with_islands(2, {"islands.sync_every=1"}), sgd));
  const std::vector<float> expected = weights_in(dir / "plain", 4), found = weights_in(dir / "0", 4);
  const std::vector<float> begun = weights_in(dir / "plain", 2);
  ASSERT_EQ(expected.size(), found.size());
  double moved = 0, most = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    most = std::max(most, std::abs(double(expected[i]) - double(found[i])));
    moved = std::max(moved, std::abs(double(expected[i]) - double(begun[i])));
  }
  const double bound = 4 * (3 * 4 * 0x1p-24 + 0.2 * 1e-5);
  EXPECT_LT(most, bound);
  EXPECT_GT(moved, 20 * bound);  // else nothing was shown
  expect_same_files(dir / "0", dir / "1", 4, {kWeights, kOuterWeights});
}

TEST(Islands, EndAlikeWithFragmentsMomentumAndDifferencesInBf16) {
  testing::TempDir dir;
  train_islands(dir.path(), 2,
                with_islands(2, {"islands.fragments=2", "islands.outer_lr=0.7", "islands.outer_momentum=0.9",
                                 "islands.wire_precision=bf16"}));
  expect_same_files(dir / "0", dir / "1", 4, {kWeights, kOuterWeights});
  EXPECT_FALSE(file_at(dir / "0", 2, kWeights) == file_at(dir / "1", 2, kWeights));  // one fragment was exchanged
}

// Islands are of other layouts: what they exchange is the same.
TEST(Islands, OfOtherLayoutsExchangeTheSameWeights) {
  testing::TempDir dir;
  const Words settings = with_islands(2, {});
  Hub hub(settings);
  auto other = std::async(std::launch::async, [&] {
    return train_island(dir / "1", hub.address(), 1, both_of(settings, {"parallel.dp=2", "parallel.zero_stage=3"}));
  });
  EXPECT_TRUE(train_island(dir / "0", hub.address(), 0, both_of(settings, {"parallel.pp=2"})));
  EXPECT_TRUE(other.get());
  expect_same_files(dir / "0", dir / "1", 4, {kWeights, kOuterWeights});
}

TEST(Islands, ReadEverySampleOnceTogether) {
  testing::TempDir dir;
  train_islands(dir.path(), 2, with_islands(2, {}));
  std::vector<int64_t> batches;
  for (int64_t k = 0; k < 2; ++k)
    for (const StepRecord& r : read_metrics(dir / std::to_string(k) / "metrics.jsonl").steps)
      batches.push_back(r.batch.value_or(r.step - 1));
  std::sort(batches.begin(), batches.end());
  EXPECT_EQ(batches, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

double term_of(const StepRecord& record, const std::string& name) {
  for (const auto& [term, value] : record.terms)
    if (term == name) return value;
  return -1;
}

// Four bytes a weight in f32 and two in bf16, and less than a thousand about them.
TEST(Islands, TellTheBytesThatTheySend) {
  testing::TempDir dir;
  train_islands(dir / "f32", 1, with_islands(1, {}));
  train_islands(dir / "bf16", 1, with_islands(1, {"islands.wire_precision=bf16"}));
  const auto weights = double(weights_in(dir / "f32/0", 4).size());
  for (const auto& [name, bytes] : {std::pair("f32/0", 4.0), {"bf16/0", 2.0}}) {
    const auto steps = read_metrics(dir / name / "metrics.jsonl").steps;
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_EQ(term_of(steps[0], "island_bytes_sent"), -1);
    for (const size_t k : {1, 3}) {
      EXPECT_GE(term_of(steps[k], "island_bytes_sent"), bytes * weights);
      EXPECT_LT(term_of(steps[k], "island_bytes_sent"), bytes * weights + 1000);
      EXPECT_GE(term_of(steps[k], "island_bytes_received"), bytes * weights);
    }
    EXPECT_GT(term_of(steps[3], "island_bytes_sent_per_token"), 2 * bytes * weights / (4 * 2 * 16));
    EXPECT_LT(term_of(steps[3], "island_bytes_sent_per_token"), (2 * bytes * weights + 2000) / (4 * 2 * 16));
  }
}

// What both were after the second step, under another name.
void copy_after_two_steps(const fs::path& dir, const fs::path& to) {
  for (const char* island : {"0", "1"}) {
    fs::create_directories(to);
    fs::copy(dir / island, to / island, fs::copy_options::recursive);
    for (int64_t step : {3, 4}) fs::remove_all(to / island / fmt::format("checkpoints/step-{}", step));
  }
}

// With a hub that begins anew and knows nothing.
TEST(Islands, ThatAreResumedTogetherGoOnToTheBit) {
  const Words settings = with_islands(2, {"islands.outer_lr=0.7", "islands.outer_momentum=0.9"});
  testing::TempDir dir;
  train_islands(dir / "whole", 2, settings);
  copy_after_two_steps(dir / "whole", dir / "resumed");
  train_islands(dir / "resumed", 2, settings);
  for (const char* island : {"0", "1"})
    expect_same_files(dir / "whole" / island, dir / "resumed" / island, 4, {kWeights, kMoments, kOuterWeights});
}

// Island 1 comes when island 0 has gone on without it: it takes the outer weights, and goes on where island 0 is, or
// ends with it.
TEST(Islands, OneThatComesLateTakesTheOuterWeights) {
  const Words settings = with_islands(2, {"islands.timeout_seconds=0.5", "train.train_iters=8"});
  testing::TempDir dir;
  Hub hub(settings);
  auto first = std::async(std::launch::async, [&] { return train_island(dir / "0", hub.address(), 0, settings); });
  for (int ms = 0; hub.rounds() < 1 && ms < 60000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(train_island(dir / "1", hub.address(), 1, settings));
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(hub.all_are_done());
  for (const StepRecord& r : read_metrics(dir / "1" / "metrics.jsonl").steps) EXPECT_GT(r.step, 2);
  EXPECT_EQ(read_metrics(dir / "0" / "metrics.jsonl").steps.size(), 8u);
  EXPECT_SAYS(testing::slurp(dir / "1" / "notes"), "takes the outer weights of");
  expect_same_files(dir / "0", dir / "1", 8, {kWeights, kOuterWeights});
}

// A hub that has had an island's numbers when the connection breaks, and says so when it comes back. It gives as the
// outer weights what it has had: the island must not add once more what it has learnt.
TEST(Islands, OneWhoseLinkVanishesBeforeTheMeanDoesNotCountTwice) {
  testing::TempDir dir;
  train_plain(dir / "plain", {"train.train_iters=8"});
  const Listener listener = listen_on("127.0.0.1:0");
  auto hub = std::async(std::launch::async, [&] {
    std::vector<std::vector<std::byte>> numbers;
    {
      IslandChannel channel = IslandChannel::accept(accept_within(listener, 20), kSecretOfTests, 20);
      EXPECT_EQ(hear_hello(channel).age.rounds, 0);
      say(channel, Welcome{});
      EXPECT_EQ(hear_offer(channel).round, 1);
      say(channel, Reply{});
      numbers.push_back(channel.receive().content);  // all: the model is small
    }
    IslandChannel channel = IslandChannel::accept(accept_within(listener, 20), kSecretOfTests, 20);
    EXPECT_EQ(hear_hello(channel).age.rounds, 0);
    say(channel, Welcome{.what = Welcome::Do::take, .age = {.rounds = 1, .step = 4, .since = 1}, .counted = 1});
    channel.send(IslandChannel::Kind::numbers, numbers[0]);
    EXPECT_EQ(hear_offer(channel).round, 2);
    say(channel, Reply{.is_late = false, .age = {.rounds = 1, .step = 4, .since = 1}, .counted = 1});
    const auto more = channel.receive().content;
    say(channel, Mean{.round = 2, .islands = 1, .step = 8});
    channel.send(IslandChannel::Kind::numbers, more);
    EXPECT_EQ(hear_offer(channel).round, 0);  // farewell
  });
  const std::string address = fmt::format("127.0.0.1:{}", listener.port);
  EXPECT_TRUE(train_island(dir / "0", address, 0, with_islands(1, {"islands.sync_every=4", "train.train_iters=8"})));
  hub.get();
  expect_same_files(dir / "plain", dir / "0", 4, {kWeights, kMoments});
  expect_same_files(dir / "plain", dir / "0", 8, {kWeights, kMoments});
}

// The hub is lost after the first round. The island says so, ends all the same, and is of one round.
TEST(Islands, GoOnAloneWithoutTheHub) {
  const Words settings = with_islands(1, {"islands.timeout_seconds=0.2", "train.train_iters=6"});
  testing::TempDir dir;
  std::optional<Listener> listener(listen_on("127.0.0.1:0"));
  const std::string address = fmt::format("127.0.0.1:{}", listener->port);
  auto hub = std::async(std::launch::async, [&] {
    IslandChannel channel = IslandChannel::accept(accept_within(*listener, 20), kSecretOfTests, 20);
    hear_hello(channel);
    say(channel, Welcome{});
    EXPECT_EQ(hear_offer(channel).round, 1);
    say(channel, Reply{});
    const auto numbers = channel.receive().content;
    listener.reset();
    say(channel, Mean{.round = 1, .islands = 1, .step = 2});
    channel.send(IslandChannel::Kind::numbers, numbers);
  });
  EXPECT_TRUE(train_island(dir / "0", address, 0, settings));
  hub.get();
  const auto steps = read_metrics(dir / "0" / "metrics.jsonl").steps;
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(term_of(steps[1], "island_rounds"), 1);
  EXPECT_EQ(term_of(steps[5], "island_rounds"), 1);
  EXPECT_SAYS(testing::slurp(dir / "0" / "notes"), "this island trains on alone");
}

TEST(Islands, AreRefusedWhereTheRecipesDiffer) {
  testing::TempDir dir;
  Hub hub(with_islands(2, {}));
  const auto why = [&](const Words& settings) {
    return testing::error_of<ConfigError>(
        [&] { train_island(dir / "1", hub.address(), 1, with_islands(2, settings)); });
  };
  EXPECT_SAYS(why({"train.seed=7"}), "train.seed = 7 there");
  EXPECT_SAYS(why({"islands.outer_lr=0.5"}), "islands.outer_lr = 0.5 there, islands.outer_lr = 1.0 at the hub");
}

TEST(Islands, SayWhereNoHubAnswersBeforeTheFirstStep) {
  testing::TempDir dir;
  const std::string error = testing::error_of<ConfigError>([&] {
    train_island(dir / "0", "127.0.0.1:1", 0, with_islands(2, {"islands.timeout_seconds=0.1", "parallel.dp=2"}));
  });
  EXPECT_SAYS(error, "no hub answers at islands.address = \"127.0.0.1:1\" within 0.1 s");
}

}  // namespace
}  // namespace weft
