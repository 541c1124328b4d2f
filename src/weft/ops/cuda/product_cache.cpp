#include "weft/ops/cuda/product_cache.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFormat = "weft products 1";
constexpr JsonLimits kLimits{.max_bytes = 4 << 20, .max_depth = 8};
constexpr size_t kLongestKey = 512, kWord = 16;  // of the algorithm: 64 bits as digits

// "NVIDIA H100 80GB HBM3" as a part of a name of a file.
std::string as_name(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, 100)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    const bool capital = c >= 'A' && c <= 'Z';
    name += plain ? c : capital ? char(c - 'A' + 'a') : '-';
  }
  return name;
}

std::string digits_of(const std::array<uint64_t, 8>& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm) text += fmt::format("{:016x}", word);
  return text;
}
std::array<uint64_t, 8> algorithm_of(const JsonFields& fields) {
  const std::string text = fields.string("algorithm");
  std::array<uint64_t, 8> algorithm = {};
  if (text.size() != algorithm.size() * kWord) fields.fail("algorithm", "128 hexadecimal digits");
  for (size_t i = 0; i < algorithm.size(); ++i) {
    const char *begin = text.data() + i * kWord, *end = begin + kWord;
    const auto [at, error] = std::from_chars(begin, end, algorithm[i], 16);
    if (error != std::errc() || at != end) fields.fail("algorithm", "128 hexadecimal digits");
  }
  return algorithm;
}

}  // namespace

ProductCache::ProductCache(fs::path folder, ProductMachine machine, Warn warn)
    : machine_(std::move(machine)), warn_(std::move(warn)) {
  if (!folder.empty())
    file_ = folder / fmt::format("products-{}-{}-cublaslt-{}.json", as_name(machine_.gpu),
                                 as_name(machine_.compute_capability), machine_.library_version);
}

std::optional<ProductWay> ProductCache::find(const ProductKey& key) {
  const std::scoped_lock lock(mutex_);
  if (!std::exchange(has_read_, true)) with_file([&] { ways_.merge(read()); });
  return known(text_of(key));
}

void ProductCache::put(const ProductKey& key, const ProductWay& way) {
  const std::scoped_lock lock(mutex_);
  const std::string name = text_of(key);
  const auto before = known(name);
  ways_[name] = way;
  with_file([&] {
    const Ways there = read();
    for (const auto& [other, its_way] : there)
      if (other != name) ways_[other] = its_way;
    const auto at = there.find(name);
    if (at != there.end() && (at->second == way || at->second != before)) return;  // another process was first
    if (ways_.size() <= kMostKeptWays) write();
  });
}

std::optional<ProductWay> ProductCache::known(const std::string& name) const {
  const auto at = ways_.find(name);
  return at == ways_.end() ? std::nullopt : std::optional(at->second);
}

template <class F>
void ProductCache::with_file(const F& f) {
  if (file_.empty()) return;
  std::string why;
  try {
    return f();
  } catch (const fs::filesystem_error& e) {
    why = fmt::format("{}: cannot be used: {}", file_.string(), e.code().message());
  } catch (const Error& e) { why = e.what(); }
  warn_(
      fmt::format("{}; it is left as it is, and the fastest ways to multiply matrices are not kept for later runs "
                  "(docs/gpu.md: WEFT_CUDA_CACHE)",
                  why));
  file_.clear();
}

ProductCache::Ways ProductCache::read() const {
  if (!fs::exists(file_)) return {};
  if (!fs::is_regular_file(file_)) throw FileError(fmt::format("{}: is not a file", file_.string()));
  if (fs::file_size(file_) > kLimits.max_bytes) throw FileError(fmt::format("{}: is too long", file_.string()));
  std::ifstream in(file_, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(in), {});
  if (in.bad() || !in.is_open()) throw FileError(fmt::format("{}: cannot be read", file_.string()));
  return ways_in(content);
}

ProductCache::Ways ProductCache::ways_in(std::string_view text) const {
  const Json json = parse_json(text, file_.string(), kLimits);
  const JsonFields fields(json, file_.string());
  const auto expect = [&](const char* key, const std::string& expected) {
    if (fields.string(key) != expected) fields.fail(key, in_quotes(expected));
  };
  expect("format", kFormat);
  expect("gpu", machine_.gpu);
  expect("compute_capability", machine_.compute_capability);
  const int64_t version = machine_.library_version;
  fields.integer("cublaslt", {.min = version, .max = version});
  const JsonFields products = fields.object("products");
  if (products.json().size() > kMostKeptWays) fields.fail("products", fmt::format("at most {}", kMostKeptWays));
  Ways ways;
  for (const auto& [key, unused] : products.json().items()) {
    if (key.size() > kLongestKey) fields.fail("products", fmt::format("names of at most {} bytes", kLongestKey));
    const JsonFields way = products.object(key);
    ways[key] = {.algorithm = algorithm_of(way), .workspace_bytes = way.integer("workspace_bytes", {.min = 0})};
  }
  return ways;
}

std::string ProductCache::text() const {
  Json products = Json::object();
  for (const auto& [key, way] : ways_)
    products[key] = {{"algorithm", digits_of(way.algorithm)}, {"workspace_bytes", way.workspace_bytes}};
  const Json json = {{"format", kFormat},
                     {"gpu", machine_.gpu},
                     {"compute_capability", machine_.compute_capability},
                     {"cublaslt", machine_.library_version},
                     {"products", products}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void ProductCache::write() const {
  fs::create_directories(file_.parent_path());
  write_file_durably(file_, text(), kOwnName);
}

}  // namespace weft
