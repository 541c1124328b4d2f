#include "weft/step/stage_links.h"

#include <algorithm>

namespace weft {
namespace {

// Gradients of a chunk that it may have sent, and the chunk before not yet taken.
constexpr int kGradientsUnderWay = 2;

}  // namespace

StageLinks::StageLinks(const Model& model, const StepSpec& step, const ProcessMesh& mesh, Arena* handover)
    : pipeline_(step.pipeline), mesh_(mesh), gradients_(size_t(model.num_chunks())), turn_(gradients_.size()) {
  if (handover == nullptr) return;
  MicroBatch batch;
  batch.stream = step.stream();
  for (int c = 0; c < model.num_chunks(); ++c)
    for (int i = 0; i < kGradientsUnderWay && !model.has_embedding(c); ++i)
      gradients_[size_t(c)].push_back(
          handover->alloc(step.precision.compute, model.stream_shape(batch), model.stream_place()));
}

// Where the chunk lies that follows on this way.
PipelinePlace StageLinks::next(int chunk, Way way) const {
  const int here = virtual_stage(pipeline_, {mesh_.pp->rank(), chunk});
  return place_of(pipeline_, way == Way::forward ? here + 1 : here - 1);
}

void StageLinks::send(Passage from, Way way, Tensor what) {
  const PipelinePlace to = next(from.chunk, way);
  Sent sent{.from = from, .way = way, .what = what, .buffer = turn_[size_t(from.chunk)]};
  if (to.stage != mesh_.pp->rank()) sent.work = ranks(way).send(what, to.stage);
  sent_.push_back(std::move(sent));
}

void StageLinks::receive(Backend& backend, Passage to, Way way, Tensor into) {
  const PipelinePlace from = next(to.chunk, way == Way::forward ? Way::backward : Way::forward);
  if (from.stage != mesh_.pp->rank()) return ranks(way).recv(into, from.stage).wait();
  const auto sent = std::find_if(sent_.begin(), sent_.end(), [&](const Sent& s) {
    return s.way == way && s.from == Passage{from.chunk, to.micro_batch};
  });
  WEFT_CHECK(sent != sent_.end(), "chunk {} has nothing for chunk {} of micro-batch {}", from.chunk, to.chunk,
             to.micro_batch);
  backend.run(Copy{.from = sent->what, .to = into});
  sent_.erase(sent);
}

Tensor StageLinks::wait_buffer(int chunk) {
  const std::vector<Tensor>& buffers = gradients_[size_t(chunk)];
  size_t& turn = turn_[size_t(chunk)];
  turn = (turn + 1) % buffers.size();
  const auto busy = std::find_if(sent_.begin(), sent_.end(), [&](const Sent& s) {
    return s.way == Way::backward && s.from.chunk == chunk && s.buffer == turn;
  });
  if (busy == sent_.end()) return buffers[turn];
  WEFT_CHECK(next(chunk, Way::backward).stage != mesh_.pp->rank(),
             "chunk {} overwrites a gradient that a chunk of the same rank has not taken", chunk);
  busy->work.wait();
  sent_.erase(busy);
  return buffers[turn];
}

void StageLinks::wait_sent(Passage from) {
  const auto sent =
      std::find_if(sent_.begin(), sent_.end(), [&](const Sent& s) { return s.way == Way::forward && s.from == from; });
  if (sent == sent_.end()) return;  // a chunk of this rank has taken it
  sent->work.wait();
  sent_.erase(sent);
}

void StageLinks::pass_over(int chunk, int64_t micro_batches) {
  for (Sent& sent : sent_)
    if (sent.from.chunk == chunk) sent.from.micro_batch += micro_batches;
}

void StageLinks::wait_all_sent() {
  for (Sent& sent : sent_) sent.work.wait();
  sent_.clear();
}

}  // namespace weft
