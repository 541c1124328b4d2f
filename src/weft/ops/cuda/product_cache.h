// The ways to multiply matrices that earlier runs found, in a file for each kind of GPU and version of the library
// (docs/formats/product_cache.md). Plain C++.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "weft/ops/cuda/product_key.h"
#include "weft/ops/cuda/product_search.h"

namespace weft {

// What a way belongs to.
struct ProductMachine {
  std::string gpu, compute_capability;  // "NVIDIA H200", "9.0"
  int64_t library_version = 0;          // cublasLtGetVersion()
};

// Thread-safe. A file that cannot be read, is not this machine's or cannot be written is no error: `warn` is told once,
// the file stays as it is, and what is found is known to this process alone. Many processes may use one file: it is
// replaced as a whole, with what others have added meanwhile; of two that find a way for one product at once, the first
// is kept. What two add in the same instant may lose one of them, which is then found again some day.
class ProductCache {
 public:
  using Warn = std::function<void(const std::string&)>;
  // `folder` is made where it is missing. Empty: there is no file.
  ProductCache(std::filesystem::path folder, ProductMachine machine, Warn warn);
  std::optional<ProductWay> find(const ProductKey& key);
  void put(const ProductKey& key, const ProductWay& way);
  const std::filesystem::path& file() const { return file_; }

 private:
  using Ways = std::map<std::string, ProductWay>;
  // f(), unless the file was of no use before.
  template <class F>
  void with_file(const F& f);
  std::optional<ProductWay> known(const std::string& name) const;
  Ways read() const;
  void write() const;
  Ways ways_in(std::string_view text) const;
  std::string text() const;

  ProductMachine machine_;
  std::filesystem::path file_;
  Warn warn_;
  std::mutex mutex_;
  bool has_read_ = false;
  Ways ways_;  // by text_of their keys
};

inline constexpr size_t kMostKeptWays = 4096;  // of a file

}  // namespace weft
