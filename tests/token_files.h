// Whole token files in one call, for tests.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "weft/data/token_writer.h"

namespace weft::testing {

inline void write_raw_tokens(const std::filesystem::path& file, std::span<const int32_t> ids,
                             const std::string& dtype) {
  RawTokenWriter out(file, dtype);
  out.append(ids);
  out.commit();
}

inline void write_megatron_tokens(const std::filesystem::path& prefix,
                                  const std::vector<std::vector<int32_t>>& documents, const std::string& dtype) {
  MegatronWriter out(prefix, dtype);
  for (const auto& document : documents) out.add_document(document);
  out.commit();
}

}  // namespace weft::testing
