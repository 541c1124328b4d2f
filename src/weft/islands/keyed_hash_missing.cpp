// Instead of keyed_hash.cpp, in a build without OpenSSL.
#include "weft/base/not_built.h"
#include "weft/islands/keyed_hash.h"

namespace weft {

namespace {

[[noreturn]] void fail_without() { throw NotBuilt("[islands]", "OpenSSL"); }

}  // namespace

KeyedHash keyed_hash(std::span<const std::byte>, std::span<const std::byte>) { fail_without(); }
bool is_same_hash(std::span<const std::byte>, std::span<const std::byte>) { fail_without(); }
void fill_random(std::span<std::byte>) { fail_without(); }

}  // namespace weft
