// What tests of the data share.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support.h"
#include "weft/data/token_source.h"

namespace weft::testing {

inline std::vector<int32_t> all_of(const TokenSource& source) {
  std::vector<int32_t> ids(size_t(source.size()), 0);
  source.read(0, ids);
  return ids;
}

}  // namespace weft::testing
