#include "weft/comm/all_to_all.h"

namespace weft {

// Partners at the same distance at the same time: no rank is everyone's first.
std::vector<Work> begin_all_to_all(Communicator& ranks, std::span<const Tensor> sent, std::span<const Tensor> received,
                                   Site site) {
  const int n = ranks.size(), me = ranks.rank();
  WEFT_CHECK(int(sent.size()) == n && int(received.size()) == n, "an all-to-all of {} and {} tensors among {} ranks",
             sent.size(), received.size(), n);
  std::vector<Work> works;
  for (int distance = 1; distance < n; ++distance) {
    const int from = (me - distance + n) % n;
    if (received[size_t(from)].elements() > 0) works.push_back(ranks.recv(received[size_t(from)], from, site));
  }
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n;
    if (sent[size_t(to)].elements() > 0) works.push_back(ranks.send(sent[size_t(to)], to, site));
  }
  return works;
}

void wait_all_to_all(Communicator& ranks, std::span<const Tensor> sent, std::span<const Tensor> received, Site site) {
  for (Work& work : begin_all_to_all(ranks, sent, received, site)) work.wait();
}

}  // namespace weft
