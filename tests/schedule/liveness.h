// How many micro-batches a schedule keeps alive at once, counted action by action.
#pragma once
#include <algorithm>

#include "weft/schedule/schedule.h"

namespace weft::testing {

// Each chunk's passage of a micro-batch counts as one. Of a single chunk: micro-batches.
inline Liveness liveness(const Schedule& schedule) {
  Liveness most;
  int dgrad = 0, wgrad = 0, between = 0;
  for (const Action& a : schedule) {
    if (a.what == Do::forward) ++dgrad, ++wgrad;
    if (a.what == Do::dgrad || a.what == Do::backward) ++between;
    most.till_dgrad = std::max(most.till_dgrad, dgrad);
    most.till_wgrad = std::max(most.till_wgrad, wgrad);
    most.dgrad_till_wgrad = std::max(most.dgrad_till_wgrad, between);
    if (a.what == Do::dgrad || a.what == Do::backward) --dgrad;
    if (a.what == Do::wgrad || a.what == Do::backward) --wgrad, --between;
  }
  return most;
}

// For each chunk by itself, up to the last that occurs: their peaks may be at different times.
inline std::vector<Liveness> liveness_of_chunks(const Schedule& schedule) {
  std::vector<Schedule> chunks;
  for (const Action& a : schedule) {
    chunks.resize(std::max(chunks.size(), size_t(a.chunk) + 1));
    chunks[size_t(a.chunk)].push_back(a);
  }
  std::vector<Liveness> all;
  for (const Schedule& chunk : chunks) all.push_back(liveness(chunk));
  return all;
}

}  // namespace weft::testing
