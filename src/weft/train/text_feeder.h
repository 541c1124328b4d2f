// Tokens of texts go in, and what the model foretells behind them comes out: on one rank of a layout.
#pragma once
#include <cstdint>
#include <span>

#include "weft/comm/process_mesh.h"
#include "weft/models/model_spec.h"

namespace weft {

class TextFeeder {
 public:
  virtual ~TextFeeder() = default;
  // Tokens that follow all those of a text so far.
  struct More {
    int64_t text;
    std::span<const int32_t> ids;
  };
  // Feeds texts. In the stage of a pipeline with the head, returns the logits [V] after the last token of each, one
  // behind the other, until the next call; else nothing. Every rank that shares the texts calls it with the same; where
  // ranks of dp pass through the model together, all of them call it, with no texts those that have none left. Blocks.
  virtual std::span<const double> feed(std::span<const More> more) = 0;
  // The tokens at the end of `ids` that the text has not been fed yet: at least the last. A text that was fed anything
  // else than what comes before them begins again, with all of `ids`.
  virtual std::span<const int32_t> unfed(int64_t text, std::span<const int32_t> ids) = 0;
  // The text has ended: others may have its pages.
  virtual void end(int64_t text) = 0;
  virtual int64_t most_tokens(int64_t text) const = 0;
  // Whether `here` is true on any rank of dp, where they share experts or weights and so pass through the model
  // together (all of them call it, and block); else `here`.
  virtual bool on_any_rank(bool here) = 0;
  virtual bool has_head() const = 0;  // this rank's stage of the pipeline
  virtual const ModelSpec& model() const = 0;
  virtual const ProcessMesh& mesh() const = 0;
};

}  // namespace weft
