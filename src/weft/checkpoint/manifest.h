// What a checkpoint was when it was saved: the size and hashes of each of its files, in weft/manifest.json
// (docs/formats/checkpoint.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/safetensors_layout.h"

namespace weft {

// A file of a checkpoint that is not, or no longer, what was saved; not one that cannot be looked at now.
class DamageError : public FileError {
 public:
  using FileError::FileError;
};

struct Manifest {
  struct Tensor {
    std::string name;
    int64_t bytes = 0;
    uint64_t sum = 0;        // word_sum, or byte_sum
    int64_t word_bytes = 4;  // of what is summed up: 1 of codes in 8 bits
  };
  struct File {
    int64_t bytes = 0;            // of all
    int64_t head_bytes = 0;       // before the tensors; of a file without tensors all
    std::string head;             // hash128 of those, as text
    std::vector<Tensor> tensors;  // in the order of their data, which they cover to the end of the file
  };
  int64_t step = 0;
  std::map<std::string, File> files;  // by path below the checkpoint, with '/'

  // Adds the files of a layout, which lie in `folder` ("" or "weft/"). `sums` are of its tensors, in the order of files
  // and of the data in them (SharedWriter::sums, of all ranks together).
  void add(const std::string& folder, const SafetensorsLayout& layout, std::span<const uint64_t> sums);
  // Adds every regular file below `checkpoint` that is not there yet, but the manifest itself. Throws FileError.
  void add_others(const std::filesystem::path& checkpoint);
};

// The text of a JSON object with a hash of all that follows the line of it as its first field.
std::string with_own_hash(const nlohmann::ordered_json& object);
// Throws DamageError, beginning with `source`, where the text is not one that with_own_hash has made, to the last byte.
void require_own_hash(std::string_view text, std::string_view source);

inline constexpr const char* kManifestFile = "weft/manifest.json";

// JSON whose first field is a hash of all that follows the line of it.
std::string to_text(const Manifest& manifest);
// Throws DamageError, beginning with `source`, where the text is not one that to_text has made, to the last byte;
// FileError where it is of a later format.
Manifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace weft
