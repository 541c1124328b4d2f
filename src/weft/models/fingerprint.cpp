#include "weft/models/fingerprint.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "weft/base/forget_pages.h"
#include "weft/base/hashing.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/comm/agree.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/peft.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using UseTensor = std::function<void(const std::string& what, std::string_view bytes)>;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Type>
std::string words_of(std::string_view name, Type type, const std::vector<int64_t>& shape) {
  return fmt::format("{} {} {}\n", name, type, fmt::join(shape, ","));
}

// Each tensor of the weights, in the order of the files.
void for_each_tensor(const fs::path& folder, const UseTensor& use) {
  if (is_gguf(folder)) {
    const GgufFile file(folder);
    for (const GgufTensor& t : file.tensors()) use(words_of(t.name, t.type, t.shape), as_text(file.bytes(t)));
    file.check_whole();
  } else if (is_adapter_folder(folder)) {
    const SafetensorsFile file = SafetensorsFile::open(folder / kAdapterFile);
    for (const SafetensorsEntry& t : file.tensors())
      use(words_of(t.name, name_of(t.dtype), t.shape), as_text(file.bytes(t)));
    file.check_whole();
  } else {
    const SafetensorsFolder files = SafetensorsFolder::open(folder);
    for (const SafetensorsFolder::Tensor& t : files.tensors())
      use(words_of(t.name(), name_of(t.entry->dtype), t.entry->shape), as_text(files.bytes(t)));
    files.check_whole();
  }
}

std::string fingerprint_of_ends(const fs::path& folder) {
  constexpr size_t kEnd = 4096;
  Hasher hash;
  for_each_tensor(folder, [&](const std::string& what, std::string_view bytes) {
    hash.add(what);
    hash.add(bytes.substr(0, kEnd));
    hash.add(bytes.substr(bytes.size() - std::min(kEnd, bytes.size())));
  });
  return hash.hex();
}

}  // namespace

std::string fingerprint_of_weights(const fs::path& folder, Communicator* ranks) {
  std::string words;
  std::vector<uint64_t> hashes;  // two of each tensor
  const auto read_share = [&] {
    const size_t share = ranks ? size_t(ranks->rank()) : 0, num_shares = ranks ? size_t(ranks->size()) : 1;
    for_each_tensor(folder, [&](const std::string& what, std::string_view bytes) {
      const bool mine = hashes.size() / 2 % num_shares == share;
      const Hash128 hash = mine ? hash128(bytes) : Hash128();
      if (mine) forget_pages(std::as_bytes(std::span(bytes)));
      words += what;
      hashes.insert(hashes.end(), {hash.high, hash.low});
    });
  };
  if (ranks) {
    agree(*ranks, read_share);
    sum_over(*ranks, hashes);
  } else {
    read_share();
  }
  Hasher all;
  all.add(words);
  all.add(as_text(std::as_bytes(std::span(hashes))));
  return all.hex();
}

bool has_fingerprint(const fs::path& folder, const std::string& kept) {
  return kept == fingerprint_of_ends(folder) || kept == fingerprint_of_weights(folder);
}

}  // namespace weft
