#include "weft/step/decoding_pass.h"

#include <algorithm>
#include <utility>

#include "weft/step/instructions.h"

namespace weft {
namespace {

// Layers read one of the streams and write the other. Logits are made behind the last one, where the head is.
void run_chunk(const DecodingPass& on, Pass& p, int chunk, const DecodingRows& rows, Tensor& logits) {
  using Op = Instruction::Op;
  const StageLinks::Passage here{chunk, 0};
  Tensor x = on.model.stream(p, p.scratch), y = on.model.stream(p, p.scratch);
  for (const Instruction& i : scoring_instructions(on.model.layers(chunk))) {
    if (i.op == Op::fetch) on.params.fetch(i.at);
    if (i.op == Op::prefetch) on.params.prefetch(i.at);
    if (i.op == Op::release) on.params.release(i.at);
    if (i.op == Op::receive && on.links) on.links->receive(on.backend, here, StageLinks::Way::forward, x);
    if (i.op == Op::send && on.links) on.links->send(here, StageLinks::Way::forward, x);
    if (i.op != Op::forward) continue;
    if (on.model.layers(chunk)[size_t(i.at)].kind != LayerKind::head) {
      on.model.decode(p, {chunk, i.at}, on.caches, rows.use, {x, y});
      std::swap(x, y);
    } else if (!rows.use.ends.empty()) {
      logits = p.stat(p.scratch, {int64_t(rows.use.ends.size()), on.model.spec().vocab_size}, tokens(Spmd::Invariant));
      on.model.logits(p, rows.use, x, logits);
    }
  }
}

}  // namespace

Tensor run_decoding(const DecodingPass& on, const DecodingRows& rows, Arena& scratch, int64_t mark) {
  scratch.rewind(mark);
  MicroBatch batch = alloc_micro_batch(scratch, int64_t(rows.ids.size()), on.step.precision.stat);
  batch.sequences = rows.sequences;
  batch.spans = rows.spans;
  const LoadMicroBatch load = [&](MicroBatch& b) {
    std::copy(rows.ids.begin(), rows.ids.end(), b.ids.as<int32_t>());
    std::copy(rows.positions.begin(), rows.positions.end(), b.positions.as<int32_t>());
  };
  if (on.staging) on.staging->load(load, batch, on.backend);
  Pass p{on.backend, on.mesh, on.step.precision, batch, &scratch, &scratch, &scratch, &scratch, &scratch};
  if (!rows.use.queries.empty()) p.shares_from = on.shares_from;
  p.reaches_experts = on.reaches_experts;
  Tensor logits;
  for (int c = 0; c < on.model.num_chunks(); ++c) run_chunk(on, p, c, rows, logits);
  for (int c = 0; c < on.model.num_chunks() && on.links != nullptr; ++c) on.links->wait_sent({c, 0});
  on.backend.wait_all();
  return logits;
}

DecodingRows any_step(size_t n, const std::vector<CachedRun>& seen, RankOf cp) {
  DecodingRows rows;
  rows.sequences.seq_length = int64_t(n);
  rows.ids.assign(n, 0);
  rows.positions.assign(n, 0);
  rows.use.ends.assign(n, 0);
  rows.use.rank = int(cp.rank);
  for (size_t i = 0; i < n; ++i)
    rows.use.queries.push_back({.rows = {int64_t(i), 1},
                                .position = seen[0].end() - 1,
                                .keeper = 0,
                                .runs = std::vector<const std::vector<CachedRun>*>(size_t(cp.size), &seen)});
  return rows;
}

}  // namespace weft
