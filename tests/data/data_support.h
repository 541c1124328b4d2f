// What tests of the data share.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support.h"
#include "weft/base/error.h"
#include "weft/data/token_source.h"

namespace weft::testing {

// What the error says that `f` throws; empty where it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}

inline std::vector<int32_t> all_of(const TokenSource& source) {
  std::vector<int32_t> ids(size_t(source.size()), 0);
  source.read(0, ids);
  return ids;
}

}  // namespace weft::testing

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
