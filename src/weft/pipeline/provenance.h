// From a token file back to the documents in it, and what happened to each on its way (docs/formats/pipeline.md).
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/pipeline/dataset.h"
#include "weft/pipeline/document.h"

namespace weft {

// Which dataset a token file is of.
struct DatasetFile {
  std::filesystem::path folder;  // of the dataset
  std::string prefix;            // of the file, in its folder `tokens`
  std::string version;           // of the dataset
};
// What a dataset says of the tokenizer that made its token files.
struct DatasetTokenizer {
  std::filesystem::path folder;  // of the dataset
  std::string name;              // as pipeline.toml has it: "byte", or a path
  std::string fingerprint;       // when the dataset was made
  int64_t vocab_size = 0;        // one more than its largest id; 0: made by a weft that did not say
  // For conversations: the templates that rendered them, by name ("default", "tool_use").
  std::map<std::string, std::string> chat_templates = {};
};
// Finds the dataset by the folder of `tokens` (a prefix, .bin or .idx); none if that is no dataset. Compares the file's
// hash with the manifest: all of it up to 64 MiB, beyond that pieces. Throws FileError if the file or the manifest was
// changed.
std::optional<DatasetFile> find_dataset(const std::filesystem::path& tokens);
// The same of many files; the manifest of each dataset is read once.
class Datasets {
 public:
  std::optional<DatasetFile> find(const std::filesystem::path& tokens);
  // The tokenizer of the dataset that lists this token file. Does not read the file.
  std::optional<DatasetTokenizer> tokenizer_of(const std::filesystem::path& tokens);

 private:
  // A token file that a dataset lists.
  struct Listed {
    std::filesystem::path prefix, folder;  // of the file, with its folder; of the dataset
    const Dataset& dataset;
    const nlohmann::json &stage, &file;  // what the manifest says
  };
  std::optional<Listed> listed(const std::filesystem::path& tokens);

  std::map<std::filesystem::path, Dataset> open_;
};

// What one stage did with a document that it kept.
struct StagePassed {
  std::string stage;
  std::vector<std::string> rules;  // of the filter stage
  std::optional<bool> changed;     // its text; none where a text before or after it is gone
};
// A document that was dropped for another.
struct MergedDuplicate {
  DocumentId id;
  std::string by;                 // text, url, near
  std::optional<double> jaccard;  // of near
  std::optional<Origin> origin;   // of the first few of a document
};
struct DocumentStory {
  DocumentId id;
  std::optional<Document> read;  // as the read stage left it; none where that is gone
  std::string text;              // as left by the last stage whose documents still exist
  std::vector<StagePassed> passed;
  std::vector<MergedDuplicate> duplicates;
  std::set<std::string> gone;  // files that would tell more
};

// Reads the stages' files. If one is gone, its part of a story is missing and the story names it. Throws FileError if a
// file is not what the manifest says.
class Provenance {
 public:
  explicit Provenance(DatasetFile file);

  const std::string& tokenizer() const { return tokenizer_; }  // as pipeline.toml names it
  // Its fingerprint when the dataset was made.
  const std::string& fingerprint() const { return fingerprint_; }
  // The id of document `number` of the token file.
  DocumentId document(int64_t number) const;
  // In the order that is asked for; each shard is read once.
  std::vector<DocumentStory> stories(const std::vector<DocumentId>& ids) const;

 private:
  struct Shard {
    std::string file, hash;
  };
  struct Stage {
    std::string name;
    std::vector<Shard> shards;
    std::vector<std::string> rules;
    std::string duplicates;  // hash of duplicates.jsonl
  };
  void check_ids(const JsonFields& tokens) const;
  struct Found {
    std::optional<Document> document;
    std::string gone;  // the file, where there is no document
  };
  std::vector<Found> documents_of(const Stage& stage, const std::vector<DocumentId>& ids) const;
  void add_duplicates(const std::vector<DocumentId>& ids, std::vector<DocumentStory>& stories) const;

  DatasetFile file_;
  std::string tokenizer_, fingerprint_;
  std::vector<Stage> stages_;  // that have documents: read first
};

}  // namespace weft
