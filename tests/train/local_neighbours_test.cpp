// Local copies that the next host holds too, by ranks that are threads with a host's name and folder each.
#include "weft/train/local_neighbours.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/comm/local_group.h"
#include "weft/train/first_weights.h"
#include "weft/train/local_copies.h"
#include "weft/train/local_resume.h"
#include "weft/train/trained_context.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of_folder;
using Hosts = std::vector<std::string>;

std::vector<int> holders_on(const Hosts& hosts) {
  std::vector<int> all;
  for (const NeighbourOf& n : neighbours_of(hosts)) all.push_back(n.holder);
  return all;
}

TEST(Neighbours, AreARingOfHosts) {
  EXPECT_EQ(holders_on({"a", "a", "b", "b"}), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(holders_on({"a", "b", "a", "b"}), (std::vector<int>{1, 0, 3, 2}));
  EXPECT_EQ(holders_on({"c", "a", "b"}), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(holders_on({"a", "a", "a", "b"}), (std::vector<int>{3, 3, 3, 0}));
  std::vector<int> turns;
  for (const NeighbourOf& n : neighbours_of({"a", "a", "a", "b"})) turns.push_back(n.turn);
  EXPECT_EQ(turns, (std::vector<int>{0, 1, 2, 0}));
  EXPECT_TRUE(neighbours_of({"a", "a"}).empty());
  EXPECT_TRUE(neighbours_of({"a"}).empty());
}

// What a test sees of the messages of ranks.
struct Messages {
  std::function<void(int rank)> before_recv = [](int) {};
  std::atomic<int> left = 0;  // that a rank has begun, and let go of without having waited for them
};

class WatchedRanks final : public Communicator {
 public:
  WatchedRanks(std::shared_ptr<Communicator> ranks, Messages& seen) : ranks_(std::move(ranks)), seen_(seen) {}
  int size() const override { return ranks_->size(); }
  int rank() const override { return ranks_->rank(); }
  Work all_reduce(Tensor x, Site site) override { return ranks_->all_reduce(x, site); }
  Work all_gather(Tensor shard, Tensor full, Site site) override { return ranks_->all_gather(shard, full, site); }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    return ranks_->reduce_scatter(full, shard, site);
  }
  Work send(Tensor x, int to, Site site) override { return watched(ranks_->send(x, to, site)); }
  Work recv(Tensor x, int from, Site site) override {
    seen_.before_recv(rank());
    return watched(ranks_->recv(x, from, site));
  }

 private:
  class Watched final : public Work::Pending {
   public:
    Watched(Work work, Messages& seen) : work_(std::move(work)), seen_(seen) {}
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    ~Watched() override { seen_.left += is_waited_for_ ? 0 : 1; }
    void wait() override {
      work_.wait();
      is_waited_for_ = true;
    }

   private:
    Work work_;
    Messages& seen_;
    bool is_waited_for_ = false;
  };
  Work watched(Work work) { return Work(std::make_shared<Watched>(std::move(work), seen_)); }

  const std::shared_ptr<Communicator> ranks_;
  Messages& seen_;
};

class CopiesOnHosts : public ::testing::Test {
 protected:
  Recipe recipe_on(const std::string& host, size_t ranks) const {
    return testing::golden_recipe(
        fs::path(testing::kSourceDir) / "tests/golden/llama-gqa", dir_ / "run",
        {"checkpoint.local_dir=" + (dir_ / host).string(), "checkpoint.local_interval=4",
         "checkpoint.local_neighbour=true", "run.ranks=mpi", "run.threads=1", "train.global_batch_size=12",
         "train.micro_batch_size=1", fmt::format("parallel.dp={}", ranks), "parallel.zero_stage=1"});
  }
  static CheckpointSource source_of(const Recipe& recipe, const RankRun& run, int64_t step) {
    return {.model = run.plan.model,
            .optimizer = *run.plan.optimizer,
            .progressed = {.step = step, .samples = 12 * step, .data = "of a test", .seed = 1},
            .model_folder = recipe.model.path,
            .tokenizer = {},
            .config = config_of_checkpoint(recipe, run.plan.config, run.plan.step.precision.stat),
            .adapter = {},
            .recipe = to_toml(recipe)};
  }
  // What ranks do that have a host each and some state.
  using Body = std::function<void(LocalCopies&, const Recipe&, RankRun&)>;
  void on_hosts(const Hosts& hosts, const Body& body) {
    const Recipe recipe = recipe_on(hosts[0], hosts.size());
    const Machine machine = machine_for(recipe);
    run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](ProcessMesh mesh) {
      const int rank = mesh.world->rank();
      mesh.world = std::make_shared<WatchedRanks>(mesh.world, messages_);
      RankRun run(plan_run(recipe, *machine.workspace_model, rank), machine, mesh);
      begin_weights(recipe, run.plan.model, run.state.params, run.backend, 1);
      const std::string& host = hosts[size_t(rank)];
      LocalCopies copies(recipe_on(host, hosts.size()), *run.mesh.world, 0, host);
      body(copies, recipe, run);
    });
  }
  // Two copies, the second of `step`, and the checkpoint that a save would have written of that. The ranks vanish then.
  void copy_on(const Hosts& hosts, int64_t step) {
    on_hosts(hosts, [&](LocalCopies& copies, const Recipe& recipe, RankRun& run) {
      for (const int64_t one : {step - 4, step}) {
        copies.begin(run.state, source_of(recipe, run, one));
        std::optional<LocalCopies::Written> written;
        while (!written) written = copies.advance();
        EXPECT_EQ(written->step, one);
        EXPECT_EQ(written->neighbour_bytes, written->bytes) << "each share goes to another host";
      }
      CheckpointSave(dir_ / "saving", run.state, source_of(recipe, run, step)).wait();
    });
  }
  fs::path share(const std::string& host, const std::string& name) const {
    for (const auto& life : fs::directory_iterator(dir_ / host)) return life.path() / name;
    return {};
  }
  // By a rank on each of these hosts.
  FoundCheckpoint resume_on(const Hosts& hosts) const {
    FoundCheckpoint found;
    run_local(int(hosts.size()), [&](Communicator& ranks) {
      const auto mine = find_state_to_resume(recipe_on(hosts[size_t(ranks.rank())], 2), ranks, 1);
      if (ranks.rank() == 0) found = mine;
    });
    return found;
  }
  fs::path made(int64_t step) const { return dir_ / "run/checkpoints" / fmt::format("step-{}", step); }
  void expect_as_saved(int64_t step) const {
    const fs::path saved = dir_ / "saving/checkpoints" / fmt::format("step-{}", step);
    EXPECT_TRUE(bytes_of_folder(made(step)) == bytes_of_folder(saved));
  }

  // From now on, rank 1 cannot write what it holds: as soon as all shares are on their own hosts, its host's folder
  // looks as if others might write there.
  void spoil_on_b() {
    messages_.before_recv = [this](int rank) {
      if (rank == 1) fs::permissions(share("b", ""), fs::perms::group_write, fs::perm_options::add);
    };
  }
  void trust_b() const { fs::permissions(share("b", ""), fs::perms::owner_all); }
  std::vector<std::string> shares_on(const std::string& host) const {
    std::vector<std::string> all;
    for (const auto& one : fs::directory_iterator(share(host, ""))) all.push_back(one.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

  testing::TempDir dir_;
  Messages messages_;
};

// Whichever host is lost, and however its ranks and those of others are numbered: the bytes are those of a save.
TEST_F(CopiesOnHosts, AnyOneHostMayBeLost) {
  const std::vector<Hosts> all{{"a", "b"}, {"b", "a", "b"}, {"a", "a", "a", "b"}, {"a", "a", "b", "c"}};
  for (const Hosts& hosts : all) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(hosts, " ")));
    for (const char* folder : {"a", "b", "c", "run", "saving"}) fs::remove_all(dir_ / folder);
    copy_on(hosts, 8);
    const std::set<std::string> names(hosts.begin(), hosts.end());
    for (const std::string& lost : names) {
      Hosts left(names.begin(), names.end());
      std::erase(left, lost);
      fs::rename(dir_ / lost, dir_ / "away");
      const FoundCheckpoint found = resume_on(left);
      EXPECT_EQ(found.path, made(8)) << lost;
      ASSERT_EQ(found.notes.size(), 1u) << lost;
      EXPECT_SAYS(found.notes[0], fmt::format("; the shares of {} of them are a neighbour's",
                                              std::count(hosts.begin(), hosts.end(), lost)));
      expect_as_saved(8);
      fs::remove_all(made(8));
      fs::rename(dir_ / "away", dir_ / lost);
    }
  }
}

TEST_F(CopiesOnHosts, ANeighboursShareHasTheFilesOfTheRanksOwn) {
  copy_on({"a", "b"}, 8);
  for (const int64_t step : {4, 8})
    for (const auto& [rank, own, other] : {std::tuple(0, "a", "b"), std::tuple(1, "b", "a")}) {
      const std::string name = fmt::format("step-{}.rank-{}-of-2", step, rank);
      const auto bytes = bytes_of_folder(share(own, name));
      EXPECT_EQ(bytes.contains("files/weft/manifest.json"), rank == 0);
      EXPECT_GT(bytes.at("data").size(), size_t{1} << 20) << "of more than one slice";
      EXPECT_TRUE(bytes == bytes_of_folder(share(other, name + ".neighbour"))) << name;
    }
  const auto here = local_copies_here(dir_ / "run", (dir_ / "a").string());
  ASSERT_EQ(here.size(), 2u);
  EXPECT_EQ(here[1].here, std::vector<int>{0});
  EXPECT_EQ(here[1].of_neighbours, std::vector<int>{1});
}

// Only the last two stay of what a host holds for others, too; and nothing where the run ends well.
TEST_F(CopiesOnHosts, OldOnesGoWithTheirRanksOwn) {
  const Hosts hosts{"a", "b"};
  on_hosts(hosts, [&](LocalCopies& copies, const Recipe& recipe, RankRun& run) {
    for (const int64_t step : {4, 8, 12}) {
      copies.begin(run.state, source_of(recipe, run, step));
      copies.wait();
    }
    barrier(*run.mesh.world);
    const std::string host = hosts[size_t(run.mesh.world->rank())];
    const auto shares_here = [&] {
      std::set<int64_t> steps;
      for (const auto& life : fs::directory_iterator(dir_ / host))
        for (const auto& one : fs::directory_iterator(life))
          if (const auto name = local_share_name_of(one.path().filename().string())) steps.insert(name->step);
      return steps;
    };
    for (int looks = 0; looks < 2000 && shares_here().size() > 2; ++looks) ::usleep(5000);  // another thread removes
    EXPECT_EQ(shares_here(), (std::set<int64_t>{8, 12})) << host;
    copies.remove_all();
    EXPECT_TRUE(shares_here().empty()) << host;
    barrier(*run.mesh.world);
  });
  for (const std::string& host : hosts) EXPECT_TRUE(fs::is_empty(dir_ / host)) << host;
}

// As rank 1 is to write the first slice that comes, and another is under way: every share is on its own host by then.
TEST_F(CopiesOnHosts, WhatOnlyAHolderCannotWriteCostsNoShareOnItsOwnHost) {
  spoil_on_b();
  on_hosts({"a", "b"}, [&](LocalCopies& copies, const Recipe& recipe, RankRun& run) {
    copies.begin(run.state, source_of(recipe, run, 8));
    const LocalCopies::Written written = copies.wait();
    EXPECT_EQ(written.step, 8);
    EXPECT_GT(written.bytes, 3 * 4 * 250000);
    EXPECT_EQ(written.neighbour_bytes, 0);
    EXPECT_SAYS(written.unheld, "what rank 1 is to hold for rank 0: ");
    EXPECT_SAYS(written.unheld, "others than its owner may write to it");
    EXPECT_FALSE(copies.is_writing());
    CheckpointSave(dir_ / "saving", run.state, source_of(recipe, run, 8)).wait();
  });
  EXPECT_EQ(messages_.left, 0) << "a slice comes to where the next copy is";
  EXPECT_EQ(shares_on("a"), std::vector<std::string>{"step-8.rank-0-of-2"});
  EXPECT_EQ(shares_on("b"), std::vector<std::string>{"step-8.rank-1-of-2"});
  trust_b();
  EXPECT_EQ(resume_on({"a", "b"}).path, made(8));
  expect_as_saved(8);
}

// Two stay, of which one is on two hosts each: with both hosts the newest is taken, without one that.
TEST_F(CopiesOnHosts, TheLastOneThatIsHeldOutlastsNewerOnesThatAreNot) {
  on_hosts({"a", "b"}, [&](LocalCopies& copies, const Recipe& recipe, RankRun& run) {
    for (const int64_t step : {4, 8, 12}) {
      if (step == 8 && run.mesh.world->rank() == 1) spoil_on_b();
      barrier(*run.mesh.world);
      copies.begin(run.state, source_of(recipe, run, step));
      EXPECT_EQ(copies.wait().unheld.empty(), step == 4);
      barrier(*run.mesh.world);
      if (run.mesh.world->rank() == 1) trust_b();
    }
  });
  EXPECT_EQ(shares_on("a"),
            (std::vector<std::string>{"step-12.rank-0-of-2", "step-4.rank-0-of-2", "step-4.rank-1-of-2.neighbour"}));
  EXPECT_EQ(shares_on("b"),
            (std::vector<std::string>{"step-12.rank-1-of-2", "step-4.rank-0-of-2.neighbour", "step-4.rank-1-of-2"}));
  EXPECT_EQ(resume_on({"a", "b"}).path, made(12));
  fs::remove_all(made(12));
  fs::remove_all(dir_ / "b");
  const FoundCheckpoint found = resume_on({"a"});
  EXPECT_EQ(found.path, made(4));
  ASSERT_FALSE(found.notes.empty());
  EXPECT_SAYS(found.notes[0], "the local copy of step 12 is passed over: 2 ranks wrote it, and the shares of 1");
}

// Two slices come here: the room for them is planned, and a rank that has no other host has none.
TEST_F(CopiesOnHosts, TheRoomForSlicesIsPlanned) {
  Recipe recipe = recipe_on("a", 2);
  const Machine machine = machine_for(recipe);
  const auto planned = [&] { return plan_run(recipe, *machine.workspace_model, 0).memory.persistent.snapshot; };
  const int64_t with = planned();
  recipe.checkpoint.local_neighbour = false;
  EXPECT_GE(with, planned() + (int64_t{2} << 20));
  EXPECT_LE(with, planned() + (int64_t{2} << 20) + 128);
  recipe.checkpoint.local_interval = 2;
  recipe.checkpoint.local_neighbour = true;
  EXPECT_NEAR(double(planned()), 3 * double(with - (int64_t{2} << 20)), 512) << "a copy every second step: one slice";
}

TEST_F(CopiesOnHosts, OnOneHostSaysThatNoOtherHoldsThem) {
  on_hosts({"a", "a"}, [&](LocalCopies& copies, const Recipe& recipe, RankRun& run) {
    EXPECT_SAYS(copies.neighbours_note(),
                "checkpoint.local_neighbour: all ranks are on one host, a, so no other holds");
    copies.begin(run.state, source_of(recipe, run, 4));
    EXPECT_EQ(copies.wait().neighbour_bytes, 0);
  });
  EXPECT_FALSE(fs::exists(share("a", "step-4.rank-0-of-2.neighbour")));
  on_hosts({"a", "b"}, [&](LocalCopies& copies, const Recipe&, RankRun&) {
    EXPECT_SAYS(copies.neighbours_note(),
                "2 hosts, of which each holds the local copies of another one too: a's are on b");
  });
}

}  // namespace
}  // namespace weft
