#include "weft/comm/mpi/host_peers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "weft/base/cores.h"
#include "weft/comm/mpi/mpi_post.h"

namespace weft {
HostPeers::HostPeers(MPI_Comm ranks) : cores_(usable_cores()) {
  int size = 0;
  MPI_Comm_rank(ranks, &rank_);
  MPI_Comm_size(ranks, &size);
  Card mine;
  ::gethostname(mine.host, sizeof mine.host - 1);
  mine.pid = ::getpid();
  struct stat table = {};
  if (::stat("/proc/self/ns/pid", &table) == 0) mine.processes = uint64_t(table.st_ino);
  cards_.resize(size_t(size));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards_.data(), sizeof mine, MPI_BYTE, ranks),
            "tell the ranks of each other");
  for (int r = 0; r < size; ++r)
    if (std::strcmp(cards_[size_t(r)].host, mine.host) == 0) here_.push_back(r);
}

bool HostPeers::on_one_host(const std::vector<int>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int r) {
    return std::strcmp(cards_[size_t(r)].host, cards_[size_t(ranks.front())].host) == 0;
  });
}

bool HostPeers::sees(const Card& other) const {
  const Card& mine = cards_[size_t(rank_)];
  return std::strcmp(other.host, mine.host) == 0 && other.processes == mine.processes && mine.processes != 0;
}

HostPeers::Is HostPeers::state(int rank) const {
  const Card& card = cards_[size_t(rank)];
  if (!sees(card)) return Is::unknown;
  std::ifstream file(fmt::format("/proc/{}/stat", card.pid));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(") ");  // proc(5): "123 (name) S ..."
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return Is::gone;
  const char state = text[name_end + 2];
  if (state == 'T') return Is::stopped;
  return state == 'Z' || state == 'X' ? Is::gone : Is::running;
}

std::string HostPeers::name(int rank) const {
  const Card& card = cards_[size_t(rank)];
  return fmt::format("process {} on host {}", card.pid, card.host);
}

}  // namespace weft
