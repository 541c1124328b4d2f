// Instead of keyed_hash.cpp, in a build without OpenSSL.
#include "weft/base/not_built.h"
#include "weft/islands/keyed_hash.h"

namespace weft {

namespace {

[[noreturn]] void fail_without() { throw NotBuilt("[islands]", "OpenSSL"); }

}  // namespace

KeyedHash keyed_hash(std::span<const std::byte>, std::span<const std::byte>) { fail_without(); }
bool is_same_hash(std::span<const std::byte>, std::span<const std::byte>) { fail_without(); }
std::string sha256_hex(std::string_view) { throw NotBuilt("a log with chained hashes", "OpenSSL"); }
void fill_random(std::span<std::byte>) { fail_without(); }

}  // namespace weft
