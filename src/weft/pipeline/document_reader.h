// From the rows of a source to the documents in them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "weft/pipeline/document.h"
#include "weft/pipeline/keys_seen.h"
#include "weft/pipeline/row_document.h"
#include "weft/pipeline/row_template.h"

namespace weft {

// For one thread.
class DocumentReader {
 public:
  // The source is borrowed. Throws ConfigError where a key of it is a template that is none.
  explicit DocumentReader(const SourceConfig& source);

  // Fills all of the document but its id. Returns why no document is meant ("blank", "no page"); empty: it is one.
  // Throws Error that says why the row is broken.
  std::string read(const SourceFile& file, const Row& row, Document& document);

  // Counts over all rows so far: "read.repaired", characters put in place of invalid bytes; "read.guessed_charset" and
  // "read.unknown_charset", pages that name no character set, or one that is not known.
  const std::map<std::string, int64_t>& changed() const { return changed_; }
  const KeysSeen& keys() const { return keys_; }

 private:
  void read_json(const Row& row, Document& d);
  void read_csv(const SourceFile& file, const Row& row, Document& d);
  void read_messages(const Row& row, Document& d) const;
  void read_text(const nlohmann::json& row, Document& d) const;
  void read_pair(const nlohmann::json& row, const nlohmann::ordered_json& written, Document& d) const;
  void read_beside(const nlohmann::json& row, Document& d) const;
  std::string read_warc(const Row& row, Document& d);
  void read_page(const std::string& bytes, const std::string& type, Document& d);
  void check_text(std::string& text);

  const SourceConfig& source_;
  RowTemplate text_, prompt_, completion_;
  std::vector<AskedKey> asked_;
  std::map<std::string, int64_t> changed_;
  KeysSeen keys_;
};

}  // namespace weft
