// A teacher that lies on the ranks otherwise than its student does: before a step it reads the global batch on its own
// mesh, and the largest logits that it finds go to the ranks that learn them.
//   k logits of a token   T tokens of a micro-batch, here
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/step/batch_staging.h"
#include "weft/step/head_logits.h"
#include "weft/step/stage_links.h"
#include "weft/step/training_state.h"

namespace weft {

class TeacherApart {
 public:
  struct Setup {
    FrozenModel& teacher;
    const StepSpec& student;  // whose TeacherSpec has `apart`
    const ProcessMesh& mesh;  // the teacher's
    Arena &states, &rows;     // on the device, and where the host reaches; without capacities, they count
    int threads;
  };
  // All that it borrows must outlive it.
  explicit TeacherApart(const Setup& setup);

  struct At {
    Backend& backend;
    BatchStaging& staging;
    Arena& evaluation;  // of the forward pass
    Traffic* traffic;   // of a dry run; none: it is real
  };
  // Micro-batches go through the teacher as many at once as it has data ranks, in the order of the global batch; `load`
  // fills micro-batch b.index of that. In a dry run one of them sends what each does. Collective over all ranks.
  // Blocks.
  void run(const At& at, const LoadMicroBatch& load);
  // What it has found at the tokens of a micro-batch of this rank, where the host reaches `to`.
  void fill(int64_t micro_batch, const TopLogits& to) const;

 private:
  // Rows that lie one behind the other on both sides.
  struct Piece {
    int64_t from, to, rows;
  };
  std::vector<Piece> pieces(const SequenceCut& from, const SequenceCut& to) const;
  struct Owner {
    int64_t dp, micro_batch;  // of the student
  };
  Owner owner_of(int64_t global_micro_batch) const;
  bool finds() const;
  int64_t row_width() const { return 2 * top_ + 1; }
  void pass(const At& at, const LoadMicroBatch& load, int64_t global_micro_batch);
  void find(const Tensor& part, int64_t first) const;
  void exchange(int64_t first, int64_t end);
  void send_found(int64_t global_micro_batch, std::vector<Work>& under_way) const;
  void receive(int64_t global_micro_batch, std::vector<Work>& under_way) const;

  FrozenModel& teacher_;
  const StepSpec &student_, &own_;
  const ProcessMesh& mesh_;
  const std::shared_ptr<Memory> memory_;  // of the states and logits
  const int64_t top_;                     // k
  const int threads_;
  StageLinks links_;
  std::optional<HeadLogits> head_;
  // i32 [.., 2 k + 1]: ids, and the bits of as many logits and of lse as f32.
  Tensor found_;  // [T of the teacher, ..]  where it is found: on the first rank of tp with its head
  Tensor rows_;   // [micro-batches here x T of the student, ..]  where the student's head is
};

}  // namespace weft
