// How a rank's chunks of the model hand tensors to the chunks before and after them, on this rank or on others.
#pragma once
#include <vector>

#include "weft/plan/chunk_pass.h"
#include "weft/plan/memory_plan.h"

namespace weft {

// Links all chunks of one rank. Streams stay where they were made, gradients wait in buffers of their own until the
// other side has taken them: kGradientsUnderWay of each chunk.
class StageLinks {
 public:
  // Takes the planned memory from `handover`; `mesh` and `model` must outlive this.
  StageLinks(const Transformer& model, const StepSpec& step, const ProcessMesh& mesh, Arena& handover);

  // As one micro-batch in one chunk sees the others. `backend` copies between chunks of this rank.
  class Link final : public Neighbours {
   public:
    Link(StageLinks& all, Backend& backend, int chunk, int64_t micro_batch)
        : all_(all), backend_(backend), chunk_(chunk), micro_batch_(micro_batch) {}
    void receive_stream(Tensor x) override { all_.receive(backend_, {chunk_, micro_batch_}, Way::forward, x); }
    void send_stream(Tensor y) override { all_.send({chunk_, micro_batch_}, Way::forward, y); }
    void receive_gradient(Tensor dy) override { all_.receive(backend_, {chunk_, micro_batch_}, Way::backward, dy); }
    Tensor gradient_to_send() override { return all_.wait_free(chunk_); }
    void send_gradient(Tensor dx) override { all_.send({chunk_, micro_batch_}, Way::backward, dx); }

   private:
    StageLinks& all_;
    Backend& backend_;
    int chunk_;
    int64_t micro_batch_;
  };
  // Until what a chunk has sent forward for a micro-batch has been taken; where calls are ordered, what the device is
  // given next comes behind that. Ops may then use its tensors' memory.
  void wait_sent(int chunk, int64_t micro_batch);
  // The same of all that is under way, at the end of a step.
  void wait_all_sent();

 private:
  enum class Way { forward, backward };
  struct Passage {
    int chunk;
    int64_t micro_batch;
    bool operator==(const Passage&) const = default;
  };
  struct Sent {
    Passage from;
    Way way;
    Tensor what;  // for a chunk of this rank
    Work work;    // for another rank
  };
  PipelinePlace next(int chunk, Way way) const;
  Communicator& ranks(Way way) const { return way == Way::forward ? *mesh_.pp : *mesh_.pp_gradients; }
  void send(Passage from, Way way, Tensor what);
  void receive(Backend& backend, Passage to, Way way, Tensor into);
  Tensor wait_free(int chunk);

  const Pipeline pipeline_;
  const ProcessMesh& mesh_;
  std::vector<std::vector<Tensor>> gradients_;  // [chunk][i]
  std::vector<size_t> turn_;                    // [chunk] which of them is next
  std::vector<Sent> sent_;
};

}  // namespace weft
