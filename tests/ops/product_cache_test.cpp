// The file of ways to multiply matrices: what is put there is found again, and what is not its own is no error.
#include "weft/ops/cuda/product_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "support.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::slurp;
using testing::spill;
using testing::TempDir;

Matmul product(int64_t m) {
  return {.a = Tensor(nullptr, DType::bf16, {m, 32}),
          .b = Tensor(nullptr, DType::bf16, {32, 48}),
          .out = Tensor(nullptr, DType::bf16, {m, 48})};
}
ProductKey key_of(int64_t m) { return product_key_of(product(m)); }
ProductWay way_of(uint64_t i) {
  return {.algorithm = {i, ~i, 0, 1, i << 60, 5, 6, 0xfedcba9876543210u}, .workspace_bytes = int64_t(i) << 20};
}

class ProductCacheFile : public ::testing::Test {
 protected:
  std::unique_ptr<ProductCache> open(const ProductMachine& machine) {
    return std::make_unique<ProductCache>(folder(), machine,
                                          [this](const std::string& what) { told_.push_back(what); });
  }
  std::unique_ptr<ProductCache> open() { return open(machine_); }
  fs::path folder() const { return dir_ / "caches/weft"; }
  // After a note that says so, what is found is known to one process, and the file stays.
  void expect_is_of_no_use(const std::string& content, const std::string& why) {
    const fs::path file = open()->file();
    fs::create_directories(folder());
    spill(file, content);
    told_.clear();
    const auto cache = open();
    EXPECT_EQ(cache->find(key_of(1)), std::nullopt);
    cache->put(key_of(1), way_of(2));
    EXPECT_EQ(cache->find(key_of(1)), way_of(2));
    cache->put(key_of(3), way_of(4));
    ASSERT_EQ(told_.size(), 1u) << content;
    EXPECT_EQ(told_[0].find(file.string() + ": "), 0u) << told_[0];
    EXPECT_NE(told_[0].find(why), std::string::npos) << told_[0];
    EXPECT_NE(told_[0].find("WEFT_CUDA_CACHE"), std::string::npos);
    EXPECT_EQ(slurp(file), content);
  }

  TempDir dir_;
  ProductMachine machine_{.gpu = "NVIDIA H100 80GB HBM3", .compute_capability = "9.0", .library_version = 130101};
  std::vector<std::string> told_;
};

TEST_F(ProductCacheFile, KeepsWhatIsFoundForTheNextProcess) {
  const auto cache = open();
  EXPECT_EQ(cache->find(key_of(1)), std::nullopt);
  EXPECT_FALSE(fs::exists(folder())) << "nothing is found yet";
  cache->put(key_of(1), way_of(2));
  cache->put(key_of(3), way_of(4));
  EXPECT_EQ(cache->file().filename(), "products-nvidia-h100-80gb-hbm3-9-0-cublaslt-130101.json");
  const auto next = open();
  EXPECT_EQ(next->find(key_of(1)), way_of(2));
  EXPECT_EQ(next->find(key_of(3)), way_of(4));
  EXPECT_EQ(next->find(key_of(2)), std::nullopt);
  next->put(key_of(1), way_of(7));
  EXPECT_EQ(open()->find(key_of(1)), way_of(7));
  EXPECT_EQ(told_, std::vector<std::string>());
}

TEST_F(ProductCacheFile, IsOfOneKindOfGpuAndOneVersion) {
  ProductMachine other = machine_, newer = machine_, alike = machine_;
  other.gpu = "NVIDIA H200", newer.library_version = 130200;
  open()->put(key_of(1), way_of(2));
  EXPECT_EQ(open(other)->find(key_of(1)), std::nullopt);
  EXPECT_EQ(open(newer)->find(key_of(1)), std::nullopt);
  EXPECT_EQ(told_, std::vector<std::string>());
  alike.gpu = "NVIDIA-H100-80GB-HBM3";  // another, whose file has the same name
  EXPECT_EQ(open(alike)->find(key_of(1)), std::nullopt);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_NE(told_[0].find("\"gpu\": expected \"NVIDIA-H100-80GB-HBM3\""), std::string::npos) << told_[0];
}

TEST_F(ProductCacheFile, WithoutAFolderItIsOfOneProcess) {
  ProductCache cache({}, machine_, [](const std::string& what) { ADD_FAILURE() << what; });
  cache.put(key_of(1), way_of(2));
  EXPECT_EQ(cache.find(key_of(1)), way_of(2));
  EXPECT_EQ(cache.file(), fs::path());
}

TEST_F(ProductCacheFile, WhatOthersWroteMeanwhileStays) {
  const auto one = open(), other = open();
  EXPECT_EQ(one->find(key_of(1)), std::nullopt);
  EXPECT_EQ(other->find(key_of(1)), std::nullopt);
  one->put(key_of(1), way_of(1));
  other->put(key_of(2), way_of(2));
  one->put(key_of(3), way_of(3));
  const auto next = open();
  for (int64_t i : {1, 2, 3}) EXPECT_EQ(next->find(key_of(i)), way_of(uint64_t(i)));
  EXPECT_EQ(one->find(key_of(2)), way_of(2));
  one->put(key_of(5), way_of(5));
  other->put(key_of(5), way_of(6));  // searched for meanwhile
  EXPECT_EQ(open()->find(key_of(5)), way_of(5));
}

// If two processes write at the same instant, the file keeps one result.
TEST_F(ProductCacheFile, WhatAProcessHasPutItKnowsWhateverTheFileHas) {
  const auto one = open();
  one->put(key_of(1), way_of(1));
  fs::remove(one->file());
  open()->put(key_of(2), way_of(2));
  EXPECT_EQ(one->find(key_of(1)), way_of(1));
  EXPECT_EQ(one->find(key_of(2)), way_of(2));
}

TEST_F(ProductCacheFile, ManyMayWriteAtOnceAndNoneReadsAHalf) {
  std::vector<std::thread> ranks;
  const auto shared = open();
  for (int64_t r = 0; r < 4; ++r)
    ranks.emplace_back([&, r] {
      const auto own = open();  // as of a process of its own
      for (int64_t i = 0; i < 10; ++i) {
        (r % 2 == 0 ? *own : *shared).put(key_of(100 * r + i), way_of(uint64_t(i)));
        own->find(key_of(1));
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(told_, std::vector<std::string>());
  const auto next = open();
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(shared->find(key_of(100 + i)), way_of(uint64_t(i)));
  shared->put(key_of(1000), way_of(1));  // with all it knows
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(next->find(key_of(300 + i)), way_of(uint64_t(i)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), {}), 1) << "temporary files are left";
}

TEST_F(ProductCacheFile, WhatIsDamagedOrForeignIsNoError) {
  open()->put(key_of(1), way_of(2));
  const std::string good = slurp(open()->file());
  const auto with = [&](const std::string& was, const std::string& is) {
    const size_t at = good.find(was);
    EXPECT_NE(at, std::string::npos) << was;
    return std::string(good).replace(at, was.size(), is);
  };
  expect_is_of_no_use("", "not valid JSON");
  expect_is_of_no_use(std::string(100, '\0'), "");
  for (const size_t length : {size_t{1}, good.size() / 2, good.size() - 3})
    expect_is_of_no_use(good.substr(0, length), "not valid JSON");
  expect_is_of_no_use(good + good, "not valid JSON");
  expect_is_of_no_use("[]", "expected a JSON object");
  expect_is_of_no_use("{}", "\"format\"");
  expect_is_of_no_use(with("weft products 1", "weft products 2"), "expected \"weft products 1\"");
  expect_is_of_no_use(with("130101", "130102"), "\"cublaslt\"");
  expect_is_of_no_use(with("\"9.0\"", "9.0"), "\"compute_capability\"");
  expect_is_of_no_use(with("fedcba98", "fedcba9"), "128 hexadecimal digits");
  expect_is_of_no_use(with("fedcba98", "fedcba 8"), "128 hexadecimal digits");
  expect_is_of_no_use(with("fedcba98", "-edcba98"), "128 hexadecimal digits");
  expect_is_of_no_use(with("2097152", "-1"), "expected a whole number of at least 0");
  expect_is_of_no_use(with("2097152", "1e300"), "expected a whole number of at least 0");
  expect_is_of_no_use(with("2097152", "\"much\""), "expected a whole number of at least 0");
  expect_is_of_no_use(with("1x48x32", std::string(600, 'x')), "at most 512 bytes");
  expect_is_of_no_use(std::string(5 << 20, ' '), "too long");
}

TEST_F(ProductCacheFile, AFileThatCannotBeOneIsNoError) {
  const fs::path file = open()->file();
  fs::create_directories(file);
  open()->put(key_of(1), way_of(2));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_NE(told_[0].find("is not a file"), std::string::npos) << told_[0];
  fs::remove(file);
  mkfifo(file.c_str(), 0600);  // nobody writes there
  EXPECT_EQ(open()->find(key_of(1)), std::nullopt);
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(ProductCacheFile, AFolderThatCannotBeWrittenIsNoError) {
  fs::create_directories(folder().parent_path());
  spill(folder(), "a file in its place");
  const auto cache = open();
  cache->put(key_of(1), way_of(2));
  cache->put(key_of(3), way_of(4));
  EXPECT_EQ(cache->find(key_of(1)), way_of(2));
  EXPECT_EQ(cache->find(key_of(3)), way_of(4));
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_EQ(slurp(folder()), "a file in its place");
}

TEST(ProductKey, SaysAllThatAWayDependsOn) {
  std::vector<std::byte> memory(4096);
  const auto at = [&](size_t offset, Shape shape, DType t = DType::bf16) {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data()) / 256 * 256 + 256;
    return Tensor(reinterpret_cast<void*>(begin + offset), t, shape);
  };
  const Matmul op{.a = at(0, {4, 6}), .b = at(256, {6, 8}), .out = at(512, {4, 8}), .bias = at(1024, {8})};
  EXPECT_EQ(text_of(product_key_of(op)), "4x8x6 bf16 to bf16, a b, strides 6 8 8, aligned 256 256 256 256");
  std::vector<Matmul> others(12, op);
  others[0].a = at(0, {5, 6}), others[0].out = at(512, {5, 8});
  others[1].b = at(256, {6, 9}), others[1].out = at(512, {4, 9});
  others[2].a = at(0, {4, 7}), others[2].b = at(256, {7, 8});
  others[3].a.row_stride = 16;
  others[4].b.row_stride = 16;
  others[5].out.row_stride = 16;
  others[6].a = at(2, {4, 6});
  others[7].bias = at(1040, {8});
  others[8].bias = {};
  others[9].out = at(512, {4, 8}, DType::f32);
  others[10].trans_a = true, others[10].a = at(0, {6, 4});
  others[11].accumulate = true;
  std::vector<std::string> names{text_of(product_key_of(op))};
  for (const Matmul& other : others) names.push_back(text_of(product_key_of(other)));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(product_key_of(others[6]).a_alignment, 2u);
  EXPECT_EQ(product_key_of(others[7]).bias_alignment, 16u);
  EXPECT_EQ(product_key_of(others[8]).bias_alignment, 0u);
}

}  // namespace
}  // namespace weft
