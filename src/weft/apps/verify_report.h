// What weft verify found, for people and for programs.
#pragma once
#include <ostream>

#include "weft/verify/verify.h"

namespace weft {

// A table for each precision, or JSON; returns the exit status: whether all is equal.
int print_report(const VerifyReport& report, bool json, std::ostream& out);

}  // namespace weft
