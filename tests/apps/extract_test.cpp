// Adapters from the difference of two models, by the commands alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::TempDir;
using testing::weft;

const fs::path kLoraCase =
    fs::path(testing::kSourceDir) / "tests/golden/lora-rslora";  // rank 8 on all matrices of blocks

class Extraction : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(kLoraCase / "adapter_final", dir_ / "adapter");
    auto config = nlohmann::json::parse(testing::slurp(dir_ / "adapter/adapter_config.json"));
    config["base_model_name_or_path"] = kLoraCase.string();
    testing::spill(dir_ / "adapter/adapter_config.json", config.dump());
    testing::spill(dir_ / "t.bin", testing::slurp(kLoraCase / "tokens.bin").substr(0, 600));
  }
  void merge(const std::string& adapter, const std::string& out) {
    const Finished f = weft({"merge", (dir_ / adapter).string(), "--out", (dir_ / out).string()});
    ASSERT_EQ(f.status, 0) << f.err;
  }
  Finished extract(const std::string& model, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"export", (dir_ / model).string(), "--lora-of", kLoraCase.string(), "--out",
                               (dir_ / "found").string(), "--threads", "1"});
    return weft(more);
  }
  double loss_of(const fs::path& model) {
    const Finished f = weft({"eval", model.string(), (dir_ / "t.bin").string(), "--seq-length", "16", "--max-batches",
                             "2", "--threads", "1", "--json"});
    EXPECT_EQ(f.status, 0) << f.err;
    return f.status == 0 ? nlohmann::json::parse(f.out)["loss"].get<double>() : 0;
  }
  TempDir dir_;
};

TEST_F(Extraction, FindsTheAdapterThatAModelWasMadeWith) {
  merge("adapter", "merged");
  const Finished f = extract("merged", {"--rank", "8", "--data", (dir_ / "t.bin").string(), "--max-loss", "1e-4"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "rank 8: lacks ");
  EXPECT_SAYS(f.out, " before, ");
  const std::string lacks = f.out.substr(f.out.find("lacks ") + 6);
  EXPECT_LT(std::stod(lacks), 1e-2) << "per cent, as f32 rounds the merged weights: " << lacks;
  const auto config = nlohmann::json::parse(testing::slurp(dir_ / "found/adapter_config.json"));
  EXPECT_EQ(config["r"], 8);
  EXPECT_EQ(config["lora_alpha"], 8);
  EXPECT_EQ(config["target_modules"].size(), 7u);
  EXPECT_NEAR(loss_of(dir_ / "found"), loss_of(dir_ / "merged"), 1e-5);
  EXPECT_GT(std::abs(loss_of(kLoraCase) - loss_of(dir_ / "merged")), 1e-3) << "the adapter changes nothing";
}

TEST_F(Extraction, OfALowerRankTellsWhatItLacks) {
  merge("adapter", "merged");
  const Finished f = extract("merged", {"--rank", "2", "--targets", "q_proj", "v_proj"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, " other tensors, which differ too, by ");
  EXPECT_GT(std::stod(f.out.substr(f.out.find("lacks ") + 6)), 1);
  EXPECT_EQ(extract("merged").status, 2) << "it is there already";
  fs::remove_all(dir_ / "found");
  const Finished refused =
      extract("merged", {"--rank", "1", "--targets", "k_proj", "--data", (dir_ / "t.bin").string(), "--max-loss", "0"});
  if (fs::exists(dir_ / "found")) return;  // the loss happened to fall
  EXPECT_EQ(refused.status, 2);
  EXPECT_SAYS(refused.err, "nothing was written; take a larger --rank");
}

TEST_F(Extraction, RefusesWhatIsNoDifferenceOfTwoModels) {
  const auto says = [](const Finished& f, const std::string& what) {
    EXPECT_EQ(f.status, 2);
    EXPECT_SAYS(f.err, what);
  };
  says(extract("adapter"), "is an adapter: weft merge makes a full model of it");
  merge("adapter", "merged");
  says(extract("merged", {"--rank", "1000"}), "--rank 1000 is more than");
  says(extract("merged", {"--targets", "embed_tokens"}), "the nearest that works: the matrices of blocks");
  says(extract("merged", {"--targets", "nothing"}), "the model has no module \"nothing\"");
  says(weft({"export", kLoraCase.string(), "--lora-of", kLoraCase.string(), "--out", (dir_ / "found").string()}),
       "the adapter would be empty");
  says(weft({"export", (kLoraCase.parent_path() / "gpt2").string(), "--lora-of", kLoraCase.string(), "--out",
             (dir_ / "found").string()}),
       "--lora-of");
  says(weft({"export", (dir_ / "merged").string()}), "--gguf FILE, or an adapter: --lora-of BASE --out FOLDER");
  EXPECT_NE(weft({"export", (dir_ / "merged").string(), "--lora-of", kLoraCase.string()}).status, 0);
  EXPECT_NE(extract("merged", {"--gguf", (dir_ / "m.gguf").string()}).status, 0);
  EXPECT_FALSE(fs::exists(dir_ / "found"));
}

}  // namespace
}  // namespace weft
