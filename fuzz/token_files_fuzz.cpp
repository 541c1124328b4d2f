// Any bytes as a pair of Megatron files: refused with an Error, or every document can be read, and together they are
// all tokens. The input is the length of the index (2 bytes), the index, the ids.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "memory_file.h"
#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/data/id_view.h"
#include "weft/data/megatron_index.h"

namespace {

void read_all(const weft::MegatronIndex& index, const weft::MappedFile& bin) {
  const weft::IdView ids{&bin, index.type(), index.num_tokens(), 1000};
  int64_t end = 0;
  for (int64_t d = 0; d < index.num_documents(); ++d) {
    const int64_t begin = index.document_begin(d);
    if (begin < end || begin > index.num_tokens()) std::abort();
    end = index.document_begin(d + 1);
    if (end < begin || end > index.num_tokens()) std::abort();
  }
  std::vector<int32_t> all(size_t(ids.size), 0);
  ids.read(0, all);
  for (int32_t id : all)
    if (id < 0 || id >= 1000) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint16_t length = 0;
  if (size < sizeof length) return 0;
  std::memcpy(&length, data, sizeof length);
  const auto rest = std::as_bytes(std::span(data, size)).subspan(sizeof length);
  const size_t index_bytes = std::min<size_t>(length, rest.size());
  // Copies: of their exact size, so that one byte too far is seen.
  const std::vector<std::byte> index(rest.begin(), rest.begin() + std::ptrdiff_t(index_bytes));
  const auto ids = rest.subspan(index_bytes);
  const MemoryFile file({reinterpret_cast<const char*>(ids.data()), ids.size()});
  try {
    const weft::MappedFile bin(file.path());
    read_all(weft::MegatronIndex(index, int64_t(bin.bytes().size()), "fuzz.idx"), bin);
  } catch (const weft::Error&) {}
  return 0;
}
