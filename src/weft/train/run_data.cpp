#include "weft/train/run_data.h"

namespace weft {

RunData open_run_data(const Recipe& r, const ModelSpec& model, const TokenizeProgress& progress) {
  DataSpec spec;
  spec.progress = progress;
  spec.paths = r.data.train;
  spec.weights = r.data.weights;
  spec.dtype = r.data.dtype;
  spec.loss_mask = r.data.loss_mask;
  spec.packing = packing_named(r.data.packing);
  spec.documents_apart = r.data.attn_mask_type == "block_causal";
  spec.text_key = r.data.text_key;
  spec.tokenizer = r.data.tokenizer;
  spec.model_folder = r.model.path;
  spec.cache_dir = r.run.dir + "/tokens";
  spec.vocab_size = model.vocab_size;
  spec.seq_length = r.train.seq_length;
  spec.seed = uint64_t(r.train.seed);
  spec.shuffle = r.data.shuffle;
  spec.valid_fraction = r.data.valid_fraction;
  RunData data;
  data.train = open_data_stream(spec);
  if (r.data.valid.empty() && r.data.valid_fraction == 0) return data;
  spec.part = DataSpec::Part::valid;
  if (!r.data.valid.empty()) {
    spec.paths = r.data.valid;
    spec.loss_mask.clear();
    spec.valid_fraction = 0;
  }
  data.valid = open_eval_windows(spec);
  return data;
}

}  // namespace weft
