// Instead of run_index.cpp, in a build without SQLite.
#include "weft/base/not_built.h"
#include "weft/history/run_index.h"

namespace weft {

struct RunIndex::Database {};

RunIndex::RunIndex(const std::filesystem::path& file) {
  throw NotBuilt(fmt::format("{}: the index of runs", file.string()), "SQLite",
                 "`weft runs show` and `diff` need none where they are given the folders of runs");
}
RunIndex::~RunIndex() = default;
// Nobody gets here: there is no RunIndex.
std::vector<std::string> RunIndex::roots() const { return {}; }
void RunIndex::add_roots(const std::vector<std::string>&) {}
void RunIndex::remove_root(const std::string&) {}
std::vector<RunIndex::Entry> RunIndex::runs() const { return {}; }
void RunIndex::update(const std::vector<Entry>&, const std::vector<std::string>&) {}

}  // namespace weft
