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

// The machine and library for which a way was found.
struct ProductMachine {
  std::string gpu, compute_capability;  // "NVIDIA H200", "9.0"
  int64_t library_version = 0;          // cublasLtGetVersion()
};

// Thread-safe. If the file cannot be read or written, or is another machine's, that is no error: `warn` is called once,
// the file stays as it is, and results stay in this process. Many processes may share a file: it is replaced as a
// whole, with what others have added meanwhile. If two find a way for the same product, the first stays. Of two writes
// at the same instant one may be lost; its way is then searched for again.
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
  // Calls f(), unless the file failed before.
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
