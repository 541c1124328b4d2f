// The second step of the tokens stage: documents that are tokenized already, to token files side by side.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/pipeline/document_encoder.h"
#include "weft/pipeline/stage.h"

namespace weft {

// How a document lies between the two steps: u64 id, u64 number of tokens and in its highest 16 bits the number of its
// series, i32 for each token, and where there are masks a byte for each.
void append_tokenized(std::string& bytes, uint64_t id, size_t series, const EncodedDocument& document);

struct TokenSeries {
  std::string name;                                // of which files are named: NAME-00000, NAME-00001, ...
  nlohmann::json more = nlohmann::json::object();  // that the manifest says of each
};
struct TokenShards {
  std::filesystem::path folder;                  // of the token files
  std::vector<TokenSeries> series;               // by their numbers
  std::vector<std::filesystem::path> tokenized;  // files of such documents, in order
  std::string dtype;                             // of Megatron pairs
  int64_t most = 0;                              // a file ends with the document with which it has so many tokens
  bool masks = false;
};

// Writes them, each with its documents and perhaps its mask, on up to context.threads threads, and tells progress. What
// each file gets is planned before: its bytes do not depend on the threads. Returns what the manifest says of each, in
// order. Memory: what a thread writes through, and 12 bytes for each document of the files that are being written.
// Throws Interrupted, FileError; files that are whole stay then.
nlohmann::json write_token_shards(const std::vector<TokenShards>& all, const StageContext& context);

}  // namespace weft
