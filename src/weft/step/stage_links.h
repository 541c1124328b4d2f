// How a rank's chunks of the model hand tensors to the chunks before and after them, on this rank or on others.
#pragma once
#include <vector>

#include "weft/models/model.h"
#include "weft/step/step_spec.h"

namespace weft {

// Links all chunks of one rank. Streams stay where they were made, gradients wait in buffers of their own until the
// other side has taken them: two of each chunk but that with the embedding.
class StageLinks {
 public:
  // Takes the buffers from `handover`; none: nothing goes backward. `mesh` must outlive this.
  StageLinks(const Model& model, const StepSpec& step, const ProcessMesh& mesh, Arena* handover);

  enum class Way { forward, backward };
  struct Passage {  // of a micro-batch through a chunk
    int chunk;
    int64_t micro_batch;
    bool operator==(const Passage&) const = default;
  };
  // To the chunk that follows on this way; `what` must live until it was taken: wait_sent, wait_buffer.
  void send(Passage from, Way way, Tensor what);
  // From the chunk that comes before on this way; `backend` copies what a chunk of this rank has sent. Blocks.
  void receive(Backend& backend, Passage to, Way way, Tensor into);
  // Until what a chunk has sent forward for a micro-batch has been taken; where calls are ordered, what the device is
  // given next comes behind that. Ops may then use its tensors' memory.
  void wait_sent(Passage from);
  // The next of a chunk's buffers for gradients, when what was in it has been taken. [t, d]
  Tensor wait_buffer(int chunk);
  // Until all that is under way has been taken, at the end of a step.
  void wait_all_sent();
  // For a dry run: adds this to the micro-batch of all that a chunk has sent.
  void pass_over(int chunk, int64_t micro_batches);

 private:
  struct Sent {
    Passage from;
    Way way;
    Tensor what;     // for a chunk of this rank
    size_t buffer;   // of a gradient
    Work work = {};  // for another rank
  };
  PipelinePlace next(int chunk, Way way) const;
  Communicator& ranks(Way way) const { return way == Way::forward ? *mesh_.pp : *mesh_.pp_gradients; }

  const Pipeline pipeline_;
  const ProcessMesh& mesh_;
  std::vector<std::vector<Tensor>> gradients_;  // [chunk][i]
  std::vector<size_t> turn_;                    // [chunk] which of them is next
  std::vector<Sent> sent_;
};

}  // namespace weft
