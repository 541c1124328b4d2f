#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

constexpr double kMost = 1e15;  // counts beyond this are slips
constexpr double kAny = std::numeric_limits<double>::infinity();

RecipeKey choice(RecipeKey key, std::vector<std::string> choices) {
  key.choices = std::move(choices);
  return key;
}
// May change when a run is resumed.
RecipeKey free(RecipeKey key) {
  key.may_change = true;
  return key;
}

}  // namespace

std::vector<RecipeKey> recipe_keys(Recipe& r) {
  auto& m = r.model;
  auto& d = r.data;
  auto& t = r.train;
  auto& o = r.optimizer;
  auto& p = r.parallel;
  return {
      {"model.path", &m.path, "Hugging Face folder: config.json, safetensors, tokenizer files"},
      choice({"model.init", &m.init, "weights of the folder, or random ones (only config.json is needed)"},
             {"pretrained", "random"}),
      {"model.embedding_dropout", &m.embedding_dropout, "after the embeddings; default: as config.json says, else 0", 0,
       1, true},
      {"model.hidden_dropout", &m.hidden_dropout, "on what each sublayer adds to the stream; default as above", 0, 1,
       true},
      {"model.attention_dropout", &m.attention_dropout, "on attention probabilities; default as above", 0, 1, true},

      {"data.train", &d.train,
       "token files (.bin, or Megatron .bin/.idx), text or JSONL (tokenized once, cached beside)"},
      {"data.weights", &d.weights, "share of each training source; default: by size", 0, kAny},
      {"data.valid", &d.valid, "held-out files of the same kinds"},
      {"data.valid_fraction", &d.valid_fraction, "or: share of the training samples to hold out", 0, 1, true},
      choice({"data.dtype", &d.dtype, "of raw id files"}, {"uint16", "uint32"}),
      {"data.loss_mask", &d.loss_mask, "uint8 file, one per position: 1 where the target at that position counts"},
      {"data.tokenizer", &d.tokenizer,
       "for text and JSONL: auto (of the model's folder, else byte), byte, or a SentencePiece .model file"},
      {"data.text_key", &d.text_key, "key of the text in JSONL"},
      {"data.shuffle", &d.shuffle, "a new order each epoch, from train.seed; else the order of the files"},

      {"train.seq_length", &t.seq_length, "tokens of a sequence", 1, kMost},
      {"train.global_batch_size", &t.global_batch_size, "sequences of an optimizer step", 1, kMost},
      {"train.micro_batch_size", &t.micro_batch_size, "sequences of one forward pass on one rank", 1, kMost},
      {"train.train_iters", &t.train_iters, "optimizer steps", 1, kMost},
      choice({"train.precision", &t.precision,
              "of compute; bf16 keeps f32 masters and gradients; f64 is what backend ref computes in"},
             {"f32", "bf16", "fp16", "f64"}),
      choice({"train.numerics", &t.numerics, "invariant: the same bits for any number of micro-batches and threads"},
             {"fast", "invariant"}),
      {"train.seed", &t.seed, "of weights, data order and dropout", 0, kMost},
      free({"train.eval_interval", &t.eval_interval, "steps between evaluations of data.valid; 0: none", 0, kMost}),
      free({"train.eval_iters", &t.eval_iters, "micro-batches of an evaluation; 0: all", 0, kMost}),
      free(
          {"train.log_interval", &t.log_interval, "steps between progress lines where there is no terminal", 1, kMost}),
      free({"train.log_grad_norms", &t.log_grad_norms, "write the gradient norm of every tensor to metrics.jsonl"}),

      choice({"optimizer.name", &o.name, ""}, {"adamw", "sgd"}),
      {"optimizer.lr", &o.lr, "learning rate at its peak", 0, kAny},
      {"optimizer.min_lr", &o.min_lr, "at the end of decay", 0, kAny},
      choice({"optimizer.lr_decay_style", &o.lr_decay_style, ""}, {"constant", "linear", "cosine", "wsd"}),
      {"optimizer.lr_warmup_iters", &o.lr_warmup_iters, "steps of linear warm-up", 0, kMost},
      {"optimizer.lr_decay_iters", &o.lr_decay_iters, "step at which min_lr is reached; 0: train_iters", 0, kMost},
      {"optimizer.lr_wsd_decay_iters", &o.lr_wsd_decay_iters, "wsd: length of the decay at the end", 0, kMost},
      {"optimizer.weight_decay", &o.weight_decay, "decoupled (adamw); of matrices and tables only", 0, kAny},
      {"optimizer.adam_beta1", &o.adam_beta1, "", 0, 1, true},
      {"optimizer.adam_beta2", &o.adam_beta2, "", 0, 1, true},
      {"optimizer.adam_eps", &o.adam_eps, "", 0, kAny},
      {"optimizer.momentum", &o.momentum, "of sgd", 0, 1, true},
      {"optimizer.clip_grad", &o.clip_grad, "largest global gradient norm; 0: no clipping", 0, kAny},

      {"parallel.dp", &p.dp, "data parallel ranks", 1, kMost},
      {"parallel.tp", &p.tp, "tensor parallel ranks", 1, kMost},
      {"parallel.pp", &p.pp, "pipeline parallel ranks", 1, kMost},
      {"parallel.cp", &p.cp, "context parallel ranks", 1, kMost},
      {"parallel.ep", &p.ep, "expert parallel ranks", 1, kMost},
      {"parallel.zero_stage", &p.zero_stage,
       "what data parallel ranks share: 1 optimizer state, 2 gradients, 3 weights", 0, 3},
      {"parallel.sequence_parallel", &p.sequence_parallel, "tensor parallel ranks cut the residual stream by tokens"},
      choice({"parallel.pipeline_schedule", &p.pipeline_schedule, ""},
             {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zbv"}),
      choice({"parallel.recompute", &p.recompute, "selective: norms, activations, attention core; full: whole blocks"},
             {"none", "selective", "full"}),

      free({"checkpoint.save_interval", &r.checkpoint.save_interval, "steps between checkpoints; 0: only at the end", 0,
            kMost}),
      free({"checkpoint.keep_latest", &r.checkpoint.keep_latest, "newest checkpoints to keep; 0: all", 0, kMost}),

      free({"run.dir", &r.run.dir, "folder of the run's records and checkpoints"}),
      choice({"run.backend", &r.run.backend, ""}, {"cpu", "cuda", "ref"}),
      choice({"run.ranks", &r.run.ranks, "threads of this process, or MPI processes"}, {"local", "mpi"}),
      free({"run.threads", &r.run.threads, "per rank; 0: share the cores", 0, 4096}),
  };
}

}  // namespace weft
