// Values of TOML tables that are not recipes: clusters and profiles. Messages begin with the source, line and column.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A string as TOML writes it: in quotes, what ends or breaks a line or a string escaped.
std::string toml_quoted(std::string_view text);

class TomlTable {
 public:
  // A whole file. Throws ConfigError for what is no TOML.
  TomlTable(const std::string& text, const std::string& source);

  // Each leaves `value` as it is where the key is not there, and throws ConfigError where it has another type or is out
  // of range.
  void get(std::string_view key, std::string& value) const;
  void get(std::string_view key, std::vector<std::string>& value) const;
  void get(std::string_view key, bool& value) const;
  void get(std::string_view key, double& value, double low, double high) const;
  void get(std::string_view key, int& value, int low, int high) const;
  // These throw where it is not there, too; and where a list is empty.
  void need(std::string_view key, std::string& value) const;
  void need(std::string_view key, std::vector<double>& value, double low, double high) const;
  bool has(std::string_view key) const;
  // A table of that name, empty where there is none; all of an array of tables.
  TomlTable table(std::string_view key) const;
  std::vector<TomlTable> tables(std::string_view key) const;
  std::string place() const;  // "c.toml:7:1": where it stands
  // Throws where a key is none of these, and names the nearest.
  void refuse_others(const std::vector<std::string>& known) const;

 private:
  struct Node;
  TomlTable(std::shared_ptr<const Node> node, std::string source)
      : node_(std::move(node)), source_(std::move(source)) {}
  std::shared_ptr<const Node> node_;
  std::string source_;
};

}  // namespace weft
