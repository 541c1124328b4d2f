// Tokens (and, in some models, their positions) as vectors of the stream.
//   T tokens, whole on tp   t those of this rank's stream   d width   V vocabulary
#pragma once
#include "weft/nn/pass.h"
#include "weft/nn/stream_dropout.h"
#include "weft/nn/table_rows.h"
#include "weft/sharding/param_store.h"

namespace weft {

class Embedding {
 public:
  struct Spec {
    int64_t vocab_size, width;
    int64_t positions;  // rows of the position table; 0: none
    double init_std, dropout;
    double scale = 1;  // of the rows of tokens
    int twin = -1;     // pipeline rank of a head that uses the table of tokens too; -1: there is none elsewhere
  };
  using Saved = TableRows::Saved;
  static constexpr std::string_view kTable = "embed.tokens";  // the token table's name
  // Closes a unit for each table.
  Embedding(ParamStore& params, const Spec& spec, const LayerPlan& plan);
  const std::vector<int>& units() const { return units_; }
  // x [t, d].
  void forward(Pass& p, Saved& s, Tensor x) const;
  void wgrad(Pass& p, const Saved& s, Tensor dx) const;  // adds to the tables' gradients
  Param& tokens_table() const { return tokens_.table(); }

  // The spec of the token table, which a head may use too.
  static ParamSpec table_spec(const Spec& spec, const LayerPlan& plan);

 private:
  static TableRows tokens_of(ParamStore& params, const Spec& spec, const LayerPlan& plan);
  std::vector<int> units_;
  TableRows tokens_;
  Param* positions_ = nullptr;
  StreamDropout dropout_;
};

}  // namespace weft
