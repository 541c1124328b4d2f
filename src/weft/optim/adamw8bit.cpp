#include "weft/optim/optimizer.h"
#include "weft/sharding/shared_blocks.h"

namespace weft {
namespace {

using Range = ParamStore::UpdateRange;

class AdamW8Optimizer final : public Optimizer {
 public:
  explicit AdamW8Optimizer(const AdamW8Spec& spec) : spec_(spec) {}

  // A unit at a time. Between the two passes over its codes, ranks that share blocks find their largest moments.
  void update(Backend& backend, ParamStore& store, Arena& scratch, const StepSize& size) const override {
    for (int u = 0; u < store.num_units(); ++u) {
      Scope maxima_of_unit(scratch);
      std::vector<Range> in_codes;
      std::vector<BlockMaxima> maxima;
      for (const Range& range : store.update_ranges(u)) {
        if (range.blocks.empty()) {
          update_adamw(backend, spec_.adamw, range, size);
          continue;
        }
        in_codes.push_back(range);
        maxima.push_back(find_maxima(backend, range, scratch, size));
      }
      wait_join_maxima(backend, store, u, kMoments, scratch, maxima);
      for (size_t i = 0; i < in_codes.size(); ++i) update(backend, in_codes[i], maxima[i], size);
    }
  }

 private:
  static constexpr int64_t kMoments = 2;
  std::vector<StateFormat> states_of(const ParamSpec&, int64_t elements) const override {
    if (elements < spec_.min_size) return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
    return {{.name = "exp_avg", .levels = Levels::with_sign}, {.name = "exp_avg_sq", .levels = Levels::without_sign}};
  }
  BlockMaxima find_maxima(Backend& backend, const Range& r, Arena& scratch, const StepSize& size) const {
    BlockMaxima found{.param = r.param, .part = r.part, .first_block = r.blocks[0].at.first_block(), .maxima = {}};
    for (const StateBlocks& b : r.blocks) found.maxima.push_back(scratch.alloc(b.absmax.dtype, b.absmax.shape));
    backend.run(AdamW8Max{.grad = r.grad,
                          .m = r.states[0],
                          .v = r.states[1],
                          .m_absmax = r.blocks[0].absmax,
                          .v_absmax = r.blocks[1].absmax,
                          .m_max = found.maxima[0],
                          .v_max = found.maxima[1],
                          .at = r.blocks[0].at,
                          .beta1 = spec_.adamw.beta1,
                          .beta2 = spec_.adamw.beta2,
                          .grad_scale = size.grad_scale});
    return found;
  }
  void update(Backend& backend, const Range& r, const BlockMaxima& found, const StepSize& size) const {
    backend.run(AdamW8{.w = r.master,
                       .grad = r.grad,
                       .m = r.states[0],
                       .v = r.states[1],
                       .m_absmax = r.blocks[0].absmax,
                       .v_absmax = r.blocks[1].absmax,
                       .m_max = found.maxima[0],
                       .v_max = found.maxima[1],
                       .value = r.value,
                       .at = r.blocks[0].at,
                       .lr = size.lr,
                       .beta1 = spec_.adamw.beta1,
                       .beta2 = spec_.adamw.beta2,
                       .eps = spec_.adamw.eps,
                       .weight_decay = r.decays ? spec_.adamw.weight_decay : 0,
                       .grad_scale = size.grad_scale,
                       .step = size.step_of(r)});
  }

  AdamW8Spec spec_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw8bit(const AdamW8Spec& spec) { return std::make_unique<AdamW8Optimizer>(spec); }

}  // namespace weft
