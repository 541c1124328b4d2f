// Token ids on disk, read where they lie (docs/formats/token_files.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace weft {

// All tokens of one file, one after the other. Immutable; any thread may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;  // tokens
  // Tokens [first, first + ids.size()). Throws FileError naming file, offset and id where one is not in the vocabulary.
  virtual void read(int64_t first, std::span<int32_t> ids) const = 0;
  virtual int64_t num_documents() const = 0;  // 0 where documents are not told apart; else all tokens are in one
  // Token at which a document begins; of num_documents(): where the last ends.
  virtual int64_t document_begin(int64_t document) const = 0;
  virtual std::string path() const = 0;
  // Changes when the tokens do: a hash of all up to 64 MiB, of pieces spread over the file beyond.
  virtual std::string fingerprint() const = 0;
};

// Little-endian ids of 2 or 4 bytes ("uint16", "uint32") and nothing else. vocab_size 0: ids are not judged.
std::unique_ptr<TokenSource> open_raw_tokens(const std::filesystem::path& file, const std::string& dtype,
                                             int64_t vocab_size);

// Megatron's indexed dataset: PREFIX.idx and PREFIX.bin. `prefix` may end in either.
std::unique_ptr<TokenSource> open_megatron_tokens(const std::filesystem::path& prefix, int64_t vocab_size);
// Whether `file` is the prefix or one half of such a pair, and both are there.
bool is_megatron(const std::filesystem::path& file);

// One byte for each token: 1 where the target at that position counts. Immutable; any thread may read.
class LossMask {
 public:
  virtual ~LossMask() = default;
  virtual void read(int64_t first, std::span<uint8_t> counted) const = 0;
  virtual std::string fingerprint() const = 0;
};
// Throws FileError where the file has another length than the source has tokens; reading does where a byte is neither
// 0 nor 1.
std::unique_ptr<LossMask> open_loss_mask(const std::filesystem::path& file, const TokenSource& source);

}  // namespace weft
