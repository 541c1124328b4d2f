// Texts joined of several values of a row: "Question: {question}\nAnswer: {answer}".
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A {key} (as find_path() takes it) stands for its value: a text, or a number or truth as JSON writes it. A {key?} may
// be missing, null or empty, and is then left out with what stands between it and the key before it. {{ and }} are
// braces. What has no braces is a key itself.
class RowTemplate {
 public:
  // Throws ConfigError that says what is wrong with the braces.
  explicit RowTemplate(std::string_view text);

  struct Key {
    std::string name;
    bool optional = false;
  };
  std::vector<Key> keys() const;
  // The key, where it is no more than that; nullptr: it is a template.
  const std::string* key() const { return is_key_ ? &parts_.front().key : nullptr; }
  // Throws Error where a key is missing or holds no text.
  std::string fill(const nlohmann::json& row) const;

 private:
  struct Part {
    std::string before, key;
    bool optional = false;
  };
  std::vector<Part> parts_;
  std::string end_;
  bool is_key_ = false;
};

}  // namespace weft
