// The logits that a teacher makes of a micro-batch, some rows at a time, and the largest of them.
//   V vocabulary
#pragma once
#include <functional>
#include <span>

#include "weft/models/transformer.h"
#include "weft/step/step_spec.h"

namespace weft {

// What the head of a model is given of a micro-batch (Model::states), and its product with the head.
class HeadLogits {
 public:
  struct Of {
    const Transformer& model;  // of the stage with the head
    const StepSpec& step;      // whose stream is not cut by tokens
    const ProcessMesh& mesh;
    Arena& arena;  // from which all of it is taken; without a capacity, that counts it
  };
  explicit HeadLogits(const Of& of);
  const Tensor& states() const { return states_; }  // of all rows, for the forward pass to write

  // Rows from `first_row` on: logits [rows, V] stat, in the arena's memory, of which the backend is done.
  using Take = std::function<void(int64_t first_row, const Tensor& logits)>;
  // Calls `take` for all rows in their order, on every rank of tp with the same. The head's weights are fetched.
  // Blocks.
  void each(Backend& backend, const Take& take) const;

 private:
  const Of of_;
  Tensor states_;
};

// What is kept of a token's logits.
struct LargestOfToken {
  std::span<int32_t> ids;   // ascending
  std::span<float> logits;  // as many
  float& lse;               // log of the sum of exp(logit / temperature) over all
};
// Finds them in a row of logits where the host reaches it. Of equal ones, those of smaller ids. If one is not finite,
// neither is any number that it writes.
void find_top(const Tensor& logits, int64_t row, double temperature, const LargestOfToken& to);

}  // namespace weft
