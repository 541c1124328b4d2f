// What tests of several folders share.
#pragma once
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "places.h"

namespace weft::testing {

// The folder `shared` beside the checkout, with data too large or too foreign for the repository; empty where absent.
inline std::filesystem::path shared_dir() {
  const std::filesystem::path dir = std::filesystem::path(kSourceDir).parent_path() / "shared";
  return std::filesystem::exists(dir) ? dir : std::filesystem::path();
}

// The message of the E that `f` throws; empty if it throws nothing. Other exceptions pass.
template <class E = std::exception, class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const E& e) { return e.what(); }
  return "";
}

inline std::string slurp(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline void spill(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

// The bytes of every regular file in and below a folder, by relative path.
inline std::map<std::string, std::string> bytes_of_folder(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[std::filesystem::relative(entry.path(), folder).string()] = slurp(entry.path());
  return files;
}

// A fresh folder, removed with all it holds at the end of the scope.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace weft::testing

#define EXPECT_SAYS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "no '" << (part) << "' in: " << (text)

// Ends a test with a message where the shared data is not at hand.
#define WEFT_NEEDS_SHARED()                                                                                         \
  if (::weft::testing::shared_dir().empty()) {                                                                      \
    GTEST_SKIP() << "needs the folder 'shared' beside the checkout (data for tests that is not in the repository)"; \
  }
