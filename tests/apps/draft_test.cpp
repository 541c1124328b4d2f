// `weft export --draft`, by the commands alone.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "random_models.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::TempDir;
using testing::weft;

class DraftExport : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::write_random_model(dir_ / "model", config_of(3), 5);
    testing::spill(dir_ / "text.txt", "some text of which the loss is told, the same before and after");
    testing::spill(dir_ / "model/chat_template.jinja", "{{ messages }}");
  }
  static nlohmann::json config_of(int num_layers) {
    return {{"model_type", "llama"},        {"vocab_size", 257},        {"hidden_size", 8},
            {"intermediate_size", 16},      {"num_attention_heads", 2}, {"num_hidden_layers", num_layers},
            {"max_position_embeddings", 32}};
  }
  Finished draft(std::vector<std::string> more, const std::string& model = "model") {
    more.insert(more.begin(), {"export", (dir_ / model).string(), "--draft", (dir_ / "out").string()});
    return weft(more);
  }
  double loss_of(const std::string& model) {
    const Finished f = weft({"eval", (dir_ / model).string(), (dir_ / "text.txt").string(), "--tokenizer", "byte",
                             "--seq-length", "32", "--threads", "1", "--json"});
    EXPECT_EQ(f.status, 0) << f.err;
    return f.status == 0 ? nlohmann::json::parse(f.out)["loss"].get<double>() : 0;
  }
  TempDir dir_;
};

TEST_F(DraftExport, OfAllLayersIsTheModelAndOfSomeTheModelBuiltOfThoseByHand) {
  const Finished all = draft({"--num-layers", "3"});
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_SAYS(all.out, "out: 3 of 3 layers (0, 1, 2), 30 tensors in F32; ");
  EXPECT_EQ(testing::slurp(dir_ / "out/chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(loss_of("out"), loss_of("model"));
  fs::remove_all(dir_ / "out");
  const auto model = SafetensorsFolder::open(dir_ / "model");
  std::vector<testing::TensorToWrite> by_hand;
  for (const auto& t : model.tensors()) {
    std::string name = t.name();
    if (name.starts_with("model.layers.1.")) continue;
    if (name.starts_with("model.layers.2.")) name[13] = '1';
    const auto bytes = model.bytes(t);
    by_hand.push_back(
        {name, t.entry->dtype, t.entry->shape, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  }
  fs::create_directories(dir_ / "by-hand");
  testing::write_safetensors_folder(dir_ / "by-hand", by_hand);
  testing::spill(dir_ / "by-hand/config.json", config_of(2).dump());
  const Finished some = draft({"--layers", "0,2", "--data", (dir_ / "text.txt").string(), "--tokenizer", "byte",
                               "--max-loss", "1000", "--threads", "1"});
  ASSERT_EQ(some.status, 0) << some.err;
  EXPECT_SAYS(some.out, "2 of 3 layers (0, 2)");
  EXPECT_SAYS(some.out, " before, ");
  EXPECT_EQ(loss_of("out"), loss_of("by-hand"));
  EXPECT_NE(loss_of("out"), loss_of("model"));
}

TEST_F(DraftExport, RefusesWhatCannotBeAndLeavesNothing) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished f = draft(more);
    EXPECT_EQ(f.status, 2) << part;
    EXPECT_SAYS(f.err, part);
    EXPECT_FALSE(fs::exists(dir_ / "out") || fs::exists(dir_ / "out.tmp")) << part;
  };
  refused({}, "which layers? --layers 0,3,7, or --num-layers 3");
  refused({"--layers", "0,3"}, "there is no layer 3: the model has 3, counted from 0 to 2");
  refused({"--num-layers", "4"}, "--num-layers 4: ");
  refused({"--num-layers", "1"}, "--num-layers");
  refused({"--layers", "0,x"}, "--layers");
  refused({"--layers", "0", "--num-layers", "2"}, "excludes");
  refused({"--layers", "0", "--bf16", "m"}, "excludes");
  refused({"--layers", "0", "--data", (dir_ / "text.txt").string(), "--tokenizer", "byte", "--max-loss", "-1"},
          "--max-loss");
  refused({"--layers", "0", "--tokenizer", "nosuchfile"},
          "--tokenizer nosuchfile: has no effect on --draft without --data");
  refused({"--layers", "0", "--threads", "3"}, "--threads 3: has no effect on --draft without --data");
  fs::create_directory(dir_ / "out");
  const Finished there = draft({"--layers", "0"});
  EXPECT_EQ(there.status, 2);
  EXPECT_SAYS(there.err, "is there already: name a new folder");
  EXPECT_NE(weft({"export", (dir_ / "model").string(), "--bf16", (dir_ / "b").string(), "--layers", "0"}).status, 0);
}

}  // namespace
}  // namespace weft
