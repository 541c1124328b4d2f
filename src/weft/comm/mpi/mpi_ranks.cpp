#include "weft/comm/mpi/mpi_ranks.h"

#include <algorithm>

#include "weft/comm/mpi/mpi_communicator.h"

namespace weft {
namespace {

uint64_t hash_of(const std::string& name) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (const unsigned char c : name) h = (h ^ c) * 0x100000001b3u;
  return h;
}

MPI_Comm world_of_our_own() {
  int begun = 0, given = 0;
  MPI_Initialized(&begun);
  WEFT_CHECK(begun == 0, "MPI has begun already: one MpiRanks in a process");
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "begin");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // those made of it inherit it
  MPI_Comm world = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "make a communicator");
  return world;
}

}  // namespace

struct MpiRanks::State {
  explicit State(const Options& o)
      : world(world_of_our_own()),
        peers(world),
        hub(std::make_shared<MpiHub>(world, peers,
                                     MpiHub::Patience{.timeout_s = o.timeout_s, .stopped_s = o.stopped_s})) {
    int threads = MPI_THREAD_SINGLE;
    MPI_Query_thread(&threads);
    if ((peers.here() < hub->size() || o.lends_on_one_host) && threads >= MPI_THREAD_SERIALIZED)
      beside = std::make_unique<MpiBeside>(hub);
  }

  std::shared_ptr<Communicator> join(const MeshGroup& g);

  MPI_Comm world;
  HostPeers peers;
  std::shared_ptr<MpiHub> hub;
  std::unique_ptr<MpiBeside> beside;  // where ranks are on other hosts, and MPI lets threads take turns
  std::vector<MPI_Comm> made;
  bool finished = false;
};

// Who shares the name is found by telling all ranks all names.
std::shared_ptr<Communicator> MpiRanks::State::join(const MeshGroup& g) {
  const uint64_t mine = hash_of(g.name);
  std::vector<uint64_t> names(size_t(hub->size()));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, names.data(), sizeof mine, MPI_BYTE, world), "tell names");
  std::vector<int> members;
  for (int r = 0; r < hub->size(); ++r)
    if (names[size_t(r)] == mine) members.push_back(r);
  if (int(members.size()) != g.size || members.at(size_t(g.rank)) != hub->rank())
    throw CommError(fmt::format("{} ranks have come to be {}, of which there are {}: the ranks have different layouts",
                                members.size(), g.name, g.size));
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(world, members[0], g.rank, &comm), "split a communicator");
  made.push_back(comm);
  const size_t size = members.size();
  const bool on_one_host = peers.on_one_host(members);
  return std::make_shared<MpiCommunicator>(hub, MpiGroup{.hub = *hub,
                                                         .comm = comm,
                                                         .index = hub->add_group(),
                                                         .members = std::move(members),
                                                         .rank = g.rank,
                                                         .on_one_host = on_one_host,
                                                         .staging = {},
                                                         .sent = std::vector<int64_t>(size),
                                                         .received = std::vector<int64_t>(size)});
}

MpiRanks::MpiRanks(const Options& options) : state_(std::make_unique<State>(options)) {}
MpiRanks::MpiRanks() : MpiRanks(Options()) {}
MpiRanks::~MpiRanks() = default;

int MpiRanks::rank() const { return state_->hub->rank(); }
int MpiRanks::size() const { return state_->hub->size(); }
const std::vector<int>& MpiRanks::ranks_here() const { return state_->peers.ranks_here(); }

namespace {

class MpiProgress final : public CommProgress {
 public:
  MpiProgress(std::shared_ptr<MpiHub> hub, MpiBeside* beside) : hub_(std::move(hub)), beside_(beside) {}
  void poll() override {
    if (beside_ != nullptr) beside_->take_back();
    hub_->poll_between();
  }
  bool lends() const override { return beside_ != nullptr; }
  void lend() override { beside_->lend(); }

 private:
  std::shared_ptr<MpiHub> hub_;
  MpiBeside* beside_;  // or none
};

}  // namespace

ProcessMesh MpiRanks::mesh(const MeshSizes& sizes) {
  if (sizes.world() != size())
    throw CommError(fmt::format("the layout has {} ranks, and {} processes were started", sizes.world(), size()));
  ProcessMesh mesh = make_mesh(sizes, rank(), [this](const MeshGroup& g) { return state_->join(g); });
  mesh.progress = std::make_shared<MpiProgress>(state_->hub, state_->beside.get());
  return mesh;
}

void MpiRanks::finish() {
  state_->beside.reset();
  state_->hub->finish();
  MPI_Barrier(state_->world);
  state_->hub->close();
  for (MPI_Comm& comm : state_->made) MPI_Comm_free(&comm);
  MPI_Comm_free(&state_->world);
  check_mpi(MPI_Finalize(), "end");
  state_->finished = true;
}

void MpiRanks::tell_failure(const std::string& why) noexcept {
  try {
    if (!state_->finished) state_->hub->tell_failure(why);
  } catch (const std::exception&) {}  // what has failed is MPI: the launcher sees this process end
}

void MpiRanks::abort(int status) {
  if (!state_->finished) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace weft
