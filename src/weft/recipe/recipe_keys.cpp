#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

Allowed count(int64_t min, double max = kMostCount) { return {.min = double(min), .max = max}; }
Allowed fraction() { return {.min = 0, .max = 1, .below_max = true}; }
Allowed at_least(double min) { return {.min = min}; }
Allowed within(double min, double max) { return {.min = min, .max = max}; }
Allowed above(double min) { return {.min = min, .above_min = true}; }
Allowed anything() { return {}; }
Allowed needed(std::string example) { return {.example = std::move(example)}; }

constexpr bool kMayChange = true;
constexpr double kMostSpikeWindow = 1 << 16;  // steps: each checkpoint lists them

}  // namespace

std::vector<RecipeKey> recipe_keys(Recipe& r) {
  auto& m = r.model;
  auto& d = r.data;
  auto& t = r.train;
  auto& o = r.optimizer;
  auto& a = r.adapter;
  auto& p = r.parallel;
  auto& c = r.checkpoint;
  auto& f = r.fleet;
  return {
      {"model.path", &m.path, needed("path = \"hf-folder\""),
       "Hugging Face folder: config.json, weights in safetensors, tokenizer files, which go along into checkpoints; or "
       "a "
       "GGUF file"},
      {"model.init", choice(m.init), anything(),
       "weights of that folder, or random ones by the family's rule from train.seed, which need config.json only"},
      {"model.embedding_dropout", &m.embedding_dropout, fraction(),
       "probability that a number is zeroed after the embeddings; not set: as config.json says, else 0"},
      {"model.hidden_dropout", &m.hidden_dropout, fraction(), "the same on what each sublayer adds to the stream"},
      {"model.attention_dropout", &m.attention_dropout, fraction(), "the same on attention probabilities"},

      {"data.train", &d.train, needed("train = [\"corpus.txt\"]"),
       "raw token files (.bin), Megatron pairs (.bin beside .idx), rows of JSON or Parquet (.jsonl, .json, .ndjson, "
       ".parquet) or text (any other name), both also compressed; text is tokenized once, and the ids are kept beside "
       "it; or the folder of a dataset (weft data run), for its training files with the weights of its sources"},
      {"data.weights", &d.weights, at_least(0),
       "share of each entry of data.train in the samples; empty: all their samples once an epoch, or the weights of "
       "the sources of the only entry, a dataset"},
      {"data.valid", &d.valid, anything(),
       "files held out for evaluation, of the same kinds; of a dataset its held-out files; with data.pairs and "
       "data.examples one such file, of which whole batches are read"},
      {"data.valid_fraction", &d.valid_fraction, fraction(),
       "instead: the last samples of each training file are held out, this share of them"},
      {"data.dtype", choice(d.dtype), anything(), "ids of raw token files; Megatron's say their own"},
      {"data.loss_mask", &d.loss_mask, anything(),
       "file with a byte for each token of the only training file: 1 where the target at that position counts in the "
       "loss, else 0; empty: a Megatron pair's PREFIX.mask if there is one, else all count"},
      {"data.packing", choice(d.packing), anything(),
       "how documents become samples: one after the other, cut each train.seq_length; or each whole into the first "
       "sample that has room for it, longer ones in pieces, and what stays empty is filled up and counts for nothing"},
      {"data.attn_mask_type", choice(d.attn_mask_type), anything(),
       "what a token sees: all before it in the sample; or those of its document alone, with positions that begin anew "
       "in each document"},
      {"data.tokenizer", &d.tokenizer, anything(),
       "for texts: auto (what the model's folder holds, else that of the data's dataset, else byte), "
       "byte (one id a byte, 256 ends a document), or a tokenizer's file or folder (docs/formats/tokenizers.md)"},
      {"data.text_key", &d.text_key, anything(),
       "JSON and Parquet: the key of a document's text, or a template (pipeline.md)"},
      {"data.chat_template", &d.chat_template, anything(),
       "of texts in data.pairs and data.examples: the file of a chat template, or chatml, llama-3, mistral, gemma, "
       "zephyr or alpaca; none: texts one behind the other; empty: that of the tokenizer's folder, if it has one"},
      {"data.pairs", &d.pairs, needed("pairs = \"pairs.jsonl\""),
       "with train.objective = \"dpo\" or \"reward\", in place of data.train: rows of JSON or Parquet with a `prompt`, "
       "the `chosen` "
       "completion and the `rejected` one, as texts, messages or token ids (docs/formats/id_rows.md)"},
      {"data.rollouts", &d.rollouts, needed("rollouts = \"rollouts.jsonl\""),
       "with train.objective = \"grpo\" or \"ppo\": rows with the token ids of a `prompt` and a sampled `completion`, "
       "its "
       "`reward` "
       "and the `old_logps` of its tokens (docs/formats/id_rows.md)"},
      {"data.examples", &d.examples, needed("examples = \"examples.jsonl\""),
       "with train.objective = \"kto\": rows with a `prompt` and a `completion`, as texts, messages or token ids, and "
       "a `label`, true where that is desirable (docs/formats/id_rows.md)"},
      {"data.shuffle", &d.shuffle, anything(),
       "a new order of samples each epoch, from train.seed; else the order of the files"},

      {"train.objective", choice(t.objective), anything(),
       "what is minimised: cross-entropy of the next token; the preference loss of pairs of completions "
       "(docs/tune/dpo.md); the policy loss of rollouts with rewards (docs/tune/grpo.md, docs/tune/ppo.md); the loss "
       "of completions that "
       "were judged one by one (docs/tune/kto.md); that of a reward model, which scores completions "
       "(docs/tune/reward.md); or the divergence from a teacher beside it (docs/tune/distill.md)"},
      {"train.loss_average", choice(t.loss_average), anything(),
       "cross_entropy: the loss of a step is a mean over all targets of its batch that count; or over its documents "
       "(conversations) of each one's mean, so that a short one weighs as much as a long one: with data.packing = "
       "\"first-fit\", where one longer than train.seq_length is several; held-out losses are means over targets "
       "either "
       "way"},
      {"train.seq_length", &t.seq_length, count(1),
       "tokens of a sample; of pairs, rollouts and examples, the most of a prompt with a completion"},
      {"train.global_batch_size", &t.global_batch_size, count(1),
       "samples of a step; with dpo and reward pairs, with grpo and ppo rollouts, with kto examples"},
      {"train.micro_batch_size", &t.micro_batch_size, count(1, 1 << 16),
       "samples that go through the model at once, on one rank; of pairs both sequences"},
      {"train.rampup_batch_size", &t.rampup_batch_size, count(1),
       "[start, increment, samples]: the batch grows from start samples to global_batch_size in steps of increment, "
       "evenly over so many samples (Megatron's --rampup-batch-size); empty: it does not (docs/tune/phases.md)"},
      {"train.train_iters", &t.train_iters, count(0),
       "steps of the whole run; a run may be given more of them later, as said below; 0: as train.epochs says"},
      {"train.epochs", &t.epochs, at_least(0),
       "instead: how often the run sees each sample, 1.5 is one and a half times; becomes train.train_iters as soon as "
       "the data is known; 0: train.train_iters says it"},
      {"train.precision", choice(t.precision), anything(),
       "of compute; bf16 and fp16 keep f32 masters and sum gradients in f32, fp16 scales the loss; auto: "
       "the fastest of these that the device has, a note says why; backend ref computes in f64, whatever stands here"},
      {"train.grad_reduce_dtype", choice(t.grad_reduce_dtype), anything(),
       "in which gradients travel between data parallel ranks: bf16 halves the bytes; it is added in f32 and rounded "
       "once, over all ranks that zero_shard_size names (all of dp without it)",
       kMayChange},
      {"train.mtp_loss_coef", &t.mtp_loss_coef, at_least(0),
       "factor of the loss of multi-token prediction, for a model whose config.json has a module of it "
       "(num_nextn_predict_layers); 0: the module is neither trained nor written"},
      {"train.loss_scale", &t.loss_scale, at_least(0),
       "fp16: the loss is multiplied by it before backward, gradients are divided by it before they are used; a step "
       "whose gradients overflow is skipped; 0: dynamic, as the next four keys say"},
      {"train.initial_loss_scale", &t.initial_loss_scale, above(0), "the dynamic loss scale of the first step"},
      {"train.min_loss_scale", &t.min_loss_scale, above(0),
       "least dynamic loss scale; a step that overflows at it ends the run"},
      {"train.loss_scale_window", &t.loss_scale_window, count(1),
       "steps in a row without overflow after which the dynamic loss scale doubles"},
      {"train.hysteresis", &t.hysteresis, count(1),
       "overflows since the dynamic loss scale last doubled at which it halves, as it does at each one after"},
      {"train.numerics", choice(t.numerics), anything(),
       "fast: repeats to the bit on the same layout; invariant: the same bits for any dp, schedule, recomputation "
       "and number of threads, at the same micro_batch_size; nondeterministic, on GPUs: fast, but backward of "
       "attention may be a faster one of cuDNN's whose last bits differ each time"},
      {"train.autotune", &t.autotune, anything(),
       "the first steps, which train like all others, try other values of micro_batch_size and cp_comm_type (unless "
       "numerics = \"invariant\") and of pipeline_schedule, and the run keeps the fastest that fit into memory "
       "(docs/layouts.md)"},
      {"train.seed", &t.seed, count(0, kNoLimit), "of random weights, the order of the data, and dropout"},
      {"train.eval_interval", &t.eval_interval, count(0),
       "steps between evaluations on the held-out data; the end is always evaluated, 0: only that", kMayChange},
      {"train.eval_iters", &t.eval_iters, count(0), "micro-batches of an evaluation; 0: all of the held-out data",
       kMayChange},
      {"train.log_interval", &t.log_interval, count(1),
       "steps between progress lines where standard error is no terminal; metrics.jsonl has every step", kMayChange},
      {"train.log_grad_norms", &t.log_grad_norms, anything(),
       "write the gradient norm of every tensor of every step to grad_norms.jsonl", kMayChange},
      {"train.log_weight_norms", &t.log_weight_norms, count(0),
       "steps between records of every tensor's norm, and of how much of it the step's update changed, in "
       "weight_norms.jsonl; also of the first step of each start and phase; takes a copy of the masters in the "
       "temporaries "
       "(docs/watch.md); 0: never",
       kMayChange},
      {"train.trace_interval", &t.trace_interval, count(0),
       "steps between those that every rank traces, op by op, into trace.json, in place of the one before: for the "
       "live "
       "page and Perfetto (docs/watch.md); such a step takes longer, 0: none",
       kMayChange},
      {"train.sample_interval", &t.sample_interval, count(0),
       "steps between the texts that the model goes on with from train.sample_prompts, into samples.jsonl and onto the "
       "live page (docs/watch.md); takes the memory of such texts, 0: none",
       kMayChange},
      {"train.sample_prompts", &t.sample_prompts, anything(),
       "beginnings of texts for train.sample_interval; 64 tokens follow each, the likeliest ones", kMayChange},
      {"train.check_replicas_interval", &t.check_replicas_interval, count(0),
       "steps between comparisons of what several ranks hold alike, by hashes: where one differs the run ends with "
       "status 87 (docs/operations.md); each save begins with one, 0: only that",
       kMayChange},
      {"train.replay_interval", &t.replay_interval, count(0),
       "steps between those whose forward and backward a data parallel neighbour does too, from the same weights and "
       "data: where a gradient differs in a bit the run ends with status 87 (docs/operations.md); such a step takes up "
       "to twice as long, 0: none",
       kMayChange},
      {"train.rebalance", &t.rebalance, anything(),
       "a data parallel rank that is slower than the others gets fewer of a step's micro-batches, and others more, "
       "while the run goes on (docs/unequal_shares.md)",
       kMayChange},
      {"train.on_spike", choice(t.on_spike), anything(),
       "a step whose loss or gradient norm stands out of those before it: is taken as any other; leaves its update out "
       "(OLMo-core's SkipStepOptimizer); or the run goes back to its newest regular checkpoint, and on from there "
       "behind the batches up to this one (PaLM) (docs/operations.md)",
       kMayChange},
      {"train.spike_sigma_factor", &t.spike_sigma_factor, above(0),
       "on_spike: by how many standard deviations it stands out, above the median of the last spike_window steps",
       kMayChange},
      {"train.spike_window", &t.spike_window, count(2, kMostSpikeWindow),
       "on_spike: steps that a step is compared with; half of them must be there", kMayChange},
      {"train.max_spikes", &t.max_spikes, count(0),
       "on_spike: most spikes among as many batches as spike_window; one more ends the run with status 91", kMayChange},

      {"objective.loss_type", choice(r.objective.loss_type), anything(),
       "dpo: -log sigmoid(beta D) (Rafailov et al. 2023), or (D - 1 / (2 beta))^2 (Azar et al. 2023); D is by how much "
       "more the chosen completion gained over the reference than the rejected one, in log-probability"},
      {"objective.beta", &r.objective.beta, above(0), "dpo, kto: how dear it is to move away from the reference"},
      {"objective.label_smoothing",
       &r.objective.label_smoothing,
       {.min = 0, .max = 0.5, .below_max = true},
       "dpo, sigmoid: the share of pairs that may be the wrong way round"},
      {"objective.average_logps", &r.objective.average_logps, anything(),
       "dpo: what a completion gained is divided by its number of tokens"},
      {"objective.desirable_weight", &r.objective.desirable_weight, at_least(0), "kto: of desirable examples"},
      {"objective.undesirable_weight", &r.objective.undesirable_weight, at_least(0), "kto: of the others"},
      {"objective.inner_updates", &r.objective.inner_updates, count(1),
       "grpo, ppo: steps that take the same rollouts, one after the other"},
      {"objective.group_size", &r.objective.group_size, count(1),
       "grpo: rows next to each other that are completions of one prompt, whose rewards are compared"},
      {"objective.clip_eps_low",
       &r.objective.clip_eps_low,
       {.min = 0, .max = 1},
       "grpo, ppo: a token less likely than 1 - this, of what it was for the sampler, is not made less likely still"},
      {"objective.clip_eps_high", &r.objective.clip_eps_high, at_least(0),
       "grpo, ppo: one more likely than 1 + this is not made more likely still"},
      {"objective.kl_beta", &r.objective.kl_beta, at_least(0),
       "grpo: factor of the divergence from the reference (exp(d) - d - 1, d = ref - logp)"},
      {"objective.gamma",
       &r.objective.gamma,
       {.min = 0, .max = 1},
       "ppo: what a reward is worth a token earlier, of what it is worth when it comes"},
      {"objective.lambda",
       &r.objective.lambda,
       {.min = 0, .max = 1},
       "ppo: of advantages (Schulman et al. 2016): 0 trusts the values, 1 the rewards"},
      {"objective.whiten_advantages", &r.objective.whiten_advantages, anything(),
       "ppo: advantages less their mean, divided by their standard deviation, over all tokens of the batch"},
      {"objective.value_clip", &r.objective.value_clip, above(0),
       "ppo: a value learns no further than so far from what it was for the sampler"},
      {"objective.value_coef", &r.objective.value_coef, at_least(0), "ppo: factor of the loss of values"},
      {"objective.kl_coef", &r.objective.kl_coef, at_least(0),
       "ppo: factor of old logp - ref logp, which is taken from each token's reward"},
      {"objective.normalisation", choice(r.objective.normalisation), anything(),
       "grpo: the loss is a mean over the batch's tokens (DAPO); the mean over completions of each one's mean (GRPO); "
       "or a "
       "sum divided by completions x max_completion_length (Dr. GRPO)"},
      {"objective.max_completion_length", &r.objective.max_completion_length, count(0),
       "grpo, normalisation constant: the most tokens that the sampler could have given"},
      {"objective.advantage_std", choice(r.objective.advantage_std), anything(),
       "grpo: a reward beside its group's mean is divided by their standard deviation, of n - 1 or n; or by nothing"},
      {"objective.advantage_eps", &r.objective.advantage_eps, at_least(0), "grpo: added to that deviation"},
      {"objective.reference", &r.objective.reference, anything(),
       "dpo, kto, grpo: folder of the weights that completions are compared with, of model.path's shape; of an "
       "adapter, "
       "another adapter's; empty: those that the run (or the [[phase]] with this objective) begins with"},
      {"objective.precompute_ref_log_probs", &r.objective.precompute_ref_log_probs, anything(),
       "dpo, kto, grpo: the reference reads all rows once, before the run, and what it makes of them is kept in a file "
       "beside them (docs/formats/reference_logps.md): the run has no reference in memory"},
      {"objective.teacher", &r.objective.teacher, needed("teacher = \"hf-folder\""),
       "distill: the model that is learned from, of the same vocabulary as model.path: a Hugging Face folder, a "
       "checkpoint of weft, or a GGUF file"},
      {"objective.teacher_logits", &r.objective.teacher_logits, anything(),
       "distill, in place of a teacher in memory: file with its largest logits at each token of data.train, which "
       "`weft "
       "teacher-logits` makes once"},
      {"objective.top_k", &r.objective.top_k, count(0),
       "distill, of a teacher in memory: so many of its largest logits at each token go to the student, all others as "
       "one class; then it may have a layout of its own on the same ranks (parallel.teacher_tp); 0: its whole "
       "distribution, and it is cut as the student is"},
      {"objective.temperature", &r.objective.temperature, within(1e-4, 1e4),
       "distill: what the logits of both are divided by in the divergence: above 1, unlikely tokens weigh more"},
      {"objective.alpha",
       &r.objective.alpha,
       {.min = 0, .max = 1},
       "distill: the share of the divergence, times temperature^2, in the loss; the rest is cross-entropy's"},
      {"objective.divergence", choice(r.objective.divergence), anything(),
       "distill: forward, KL(teacher, student), of all that the teacher holds likely (Hinton et al. 2015); reverse, "
       "KL(student, teacher), of what the student does (Gu et al. 2024)"},

      {"optimizer.name", choice(o.name), anything(),
       "AdamW (Loshchilov & Hutter 2019); adamw8bit, the same with moments in 8 bits (Dettmers et al. 2022), in 2.03 "
       "bytes a weight in place of 8; SGD with momentum; or Muon (Jordan et al. 2024), which orthogonalizes the "
       "updates of the matrices of blocks, and is AdamW for embeddings, head, norms and biases"},
      {"optimizer.lr", &o.lr, at_least(0), "learning rate at its peak"},
      {"optimizer.min_lr", &o.min_lr, at_least(0), "learning rate at the end of decay, at most lr"},
      {"optimizer.lr_decay_style", choice(o.lr_decay_style), anything(),
       "the way from lr to min_lr, after warm-up; wsd stays at lr and falls linearly at the end"},
      {"optimizer.lr_warmup_iters", &o.lr_warmup_iters, count(0),
       "steps of linear warm-up; the first has lr / lr_warmup_iters"},
      {"optimizer.lr_decay_iters", &o.lr_decay_iters, count(0),
       "step at which min_lr is reached, warm-up included; 0: train.train_iters"},
      {"optimizer.lr_wsd_decay_iters", &o.lr_wsd_decay_iters, count(0), "wsd: length of the fall at the end"},
      {"optimizer.lr_scaling", choice(o.lr_scaling), anything(),
       "how lr and min_lr follow the batch size where a [[phase]] or rampup_batch_size changes it: not at all; in "
       "proportion (Goyal et al. 2017); as its square root (Malladi et al. 2022, for Adam); or so with adam_beta1, "
       "adam_beta2 and adam_eps, as that rule has it in full"},
      {"optimizer.weight_decay", &o.weight_decay, at_least(0),
       "of matrices and tables only, not of biases and norms; adamw, adamw8bit, muon: decoupled; sgd: added to the "
       "gradient"},
      {"optimizer.adam_beta1", &o.adam_beta1, fraction(), "adamw, adamw8bit, muon: decay of the first moment"},
      {"optimizer.adam_beta2", &o.adam_beta2, fraction(), "adamw, adamw8bit, muon: decay of the second moment"},
      {"optimizer.adam_eps", &o.adam_eps, at_least(1e-30),
       "adamw, adamw8bit, muon: added to the root of the second moment"},
      {"optimizer.min_8bit_size", &o.min_8bit_size, count(0),
       "adamw8bit: elements from which on a tensor has its moments in 8 bits; smaller ones, as most norms and biases, "
       "in "
       "full"},
      {"optimizer.momentum", &o.momentum, fraction(), "sgd: decay of the sum of gradients"},
      {"optimizer.muon_momentum", &o.muon_momentum, fraction(), "muon: decay of the sum of gradients"},
      {"optimizer.muon_nesterov", &o.muon_nesterov, anything(), "muon: the gradient is added once more to its sum"},
      {"optimizer.muon_ns_steps", &o.muon_ns_steps, count(1, 100), "muon: steps of the Newton-Schulz iteration"},
      {"optimizer.muon_scale", choice(o.muon_scale), anything(),
       "muon: what orthogonal updates are multiplied with: 0.2 sqrt(max(rows, cols)) (Liu et al. 2025), as large as "
       "adamw's; or sqrt(max(1, rows / cols))"},
      {"optimizer.clip_grad", &o.clip_grad, at_least(0),
       "gradients are scaled down where their global norm is above this; 0: never"},

      {"adapter.kind", choice(a.kind), anything(),
       "lora: the model is frozen, and low-rank matrices beside its own learn (Hu et al. 2021); dora: the lengths of "
       "the rows of their sum learn too (Liu et al. 2024); qlora: lora beside a model whose matrices are kept in codes "
       "(Dettmers et al. 2023); qdora: dora beside such a model; checkpoints are PEFT folders; weft merge makes a "
       "model of both"},
      {"adapter.rank", &a.rank, count(1, 1 << 20), "width of an adapter: of the rows of its A, the columns of its B"},
      {"adapter.alpha", &a.alpha, within(1e-30, 1e6), "B A is multiplied by alpha / rank"},
      {"adapter.rslora", &a.rslora, anything(), "or by alpha / sqrt(rank) (Kalajdzievski 2023)"},
      {"adapter.dropout", &a.dropout, fraction(),
       "in training: probability that a number of what A is multiplied with is zeroed"},
      {"adapter.targets", &a.targets, anything(),
       "modules that have one, by their last names in Hugging Face's files, as [\"q_proj\", \"v_proj\"], or whole "
       "names, in "
       "which * stands for any text; \"all-linear\": every matrix of the blocks but routers' and gates', not the head"},
      {"adapter.path", &a.path, anything(),
       "PEFT folder of an adapter to begin with, which has these settings; empty: B is zero, A random from train.seed"},
      {"adapter.quant_type", choice(a.quant_type), anything(),
       "qlora and qdora: codes of the frozen matrices of blocks: nf4, 4 bits an element and 8 for each 64 (double "
       "quantisation); "
       "int8, 8 bits an element and a scale for each row"},

      {"moe.aux_loss_coef", &r.moe.aux_loss_coef, at_least(0),
       "experts: factor of the loss that pulls the load of each sequence towards balance; not set: as config.json "
       "says, "
       "else 0"},
      {"moe.global_aux_loss_coef", &r.moe.global_aux_loss_coef, at_least(0),
       "the same of the load of the global batch, which a forward pass over it finds first: a third more computing; "
       "not "
       "set: 0"},
      {"moe.z_loss_coef", &r.moe.z_loss_coef, at_least(0),
       "experts: factor of the mean square of the log-sum-exp of router logits; not set: 0"},
      {"moe.capacity_factor", &r.moe.capacity_factor, at_least(1),
       "with parallel.ep: rows of experts that a rank has room for in a micro-batch, x those that it has where all "
       "ranks have as many (tokens x experts of each), rounded up; held-out data goes through the same room; not set: "
       "all that can "
       "come",
       kMayChange},
      {"moe.overflow", choice(r.moe.overflow), anything(),
       "what more rows than that are: an error, which ends the run, in an evaluation too; or dropped: of the experts "
       "of "
       "a rank with too many, those with most lose their last tokens; metrics count what training drops, not what an "
       "evaluation does"},
      {"moe.bias_update_rate", &r.moe.bias_update_rate, at_least(0),
       "deepseek_v3: what a step adds to the bias by which an expert is chosen if it had fewer tokens of the global "
       "batch than the mean, and takes from it if it had more"},

      {"eval.tasks", &r.eval.tasks, anything(),
       "benchmarks that the run scores as it goes, with the files of their questions, as \"piqa=piqa.jsonl\" "
       "(docs/tune/eval.md); empty: none",
       kMayChange},
      {"eval.interval", &r.eval.interval, count(0),
       "steps between these; the last step is always scored, and one where a [[phase]] requires a result; 0: only "
       "those",
       kMayChange},
      {"eval.limit", &r.eval.limit, count(0), "only so many first questions of each file; 0: all", kMayChange},
      {"eval.num_fewshot", &r.eval.num_fewshot, count(0, 1000),
       "solved examples before each question, which train.seed chooses", kMayChange},
      {"eval.fewshot_from", &r.eval.fewshot_from, anything(),
       "files of these, as \"piqa=train.jsonl\"; without one, other rows of the task's own file", kMayChange},
      {"eval.max_tokens", &r.eval.max_tokens, count(0),
       "the most tokens that the model writes as an answer; 0: as its task says (gsm8k: 256)", kMayChange},
      {"eval.bad_words", &r.eval.bad_words, anything(),
       "of the task toxicity: a file of words, one a line, that make an answer toxic", kMayChange},

      {"parallel.dp", &p.dp, count(1), "data parallel ranks: each trains on a share of the batch", kMayChange},
      {"parallel.micro_batches", &p.micro_batches, count(1),
       "micro-batches of a step that each of the dp ranks computes, as [6, 2], for ranks that are not equally fast; "
       "their sum is train.global_batch_size / train.micro_batch_size; empty: equally many (docs/unequal_shares.md)",
       kMayChange},
      {"parallel.tp", &p.tp, count(1), "tensor parallel ranks", kMayChange},
      {"parallel.pp", &p.pp, count(1), "pipeline stages", kMayChange},
      {"parallel.cp", &p.cp, count(1), "context parallel ranks: each has a share of every sequence's tokens",
       kMayChange},
      {"parallel.cp_comm_type", choice(p.cp_comm_type), anything(),
       "how context parallel ranks attend to each other's keys: p2p passes them around while attention computes; "
       "all_gather brings all of them to each rank; a2a gives each rank the whole sequences of a share of the heads; "
       "a2a+p2p does so among parallel.cp_a2a_size neighbours (of one host), whose groups pass keys around",
       kMayChange},
      {"parallel.cp_a2a_size", &p.cp_a2a_size, count(0),
       "with cp_comm_type = \"a2a+p2p\": neighbouring context parallel ranks that share the heads, a divisor of "
       "parallel.cp; else 0",
       kMayChange},
      {"parallel.ep", &p.ep, count(1),
       "expert parallel ranks, among those of dp x cp: each has a share of every layer's experts, to which tokens are "
       "sent",
       kMayChange},
      {"parallel.order", &p.order, anything(),
       "in which order ranks are numbered: tp, cp, ep, dp, pp, each once, ranks next to each other first; ep cuts the "
       "ranks of dp x cp and has none of its own; no result depends on it",
       kMayChange},
      {"parallel.zero_stage", &p.zero_stage, count(0, 3),
       "what data parallel ranks divide among them: 1 optimizer state, 2 gradients too, 3 weights too", kMayChange},
      {"parallel.zero_shard_size", &p.zero_shard_size, count(0),
       "data parallel ranks that share one set of shards (hybrid sharding); others hold copies; 0: all of them",
       kMayChange},
      {"parallel.frozen_shard_size", &p.frozen_shard_size, count(0),
       "data parallel ranks that divide among them the weights of a model that is frozen beside the trained one, a "
       "teacher or a reference, each block of which comes together while it is read, as under zero_stage 3, whatever "
       "the trained model has: a divisor of dp x cp; 1: each rank has them whole; 0: as zero_stage says",
       kMayChange},
      {"parallel.frozen_ep", &p.frozen_ep, count(0),
       "the same of that model's experts: parallel.ep of its own, for a teacher with experts beside a student without "
       "(docs/tune/distill.md); 0: as ep says",
       kMayChange},
      {"parallel.teacher_tp", &p.teacher_tp, count(0),
       "distill with objective.top_k: tensor parallel ranks of the teacher, whatever the student has; all ranks hold a "
       "part of it, and as many data ranks read for it as tp, pp and cp of its own leave, each with its part whole, "
       "whatever zero_stage is; 0: as parallel.tp",
       kMayChange},
      {"parallel.teacher_pp", &p.teacher_pp, count(0), "the same of its pipeline's stages; 0: as parallel.pp",
       kMayChange},
      {"parallel.teacher_cp", &p.teacher_cp, count(0), "the same of its context parallel ranks; 0: as parallel.cp",
       kMayChange},
      {"parallel.teacher_ep", &p.teacher_ep, count(1),
       "the same of its expert parallel ranks, a divisor of its data parallel and context parallel ones", kMayChange},
      {"parallel.sequence_parallel", &p.sequence_parallel, anything(),
       "tensor parallel ranks divide the stream by tokens", kMayChange},
      {"parallel.pipeline_schedule", choice(p.pipeline_schedule), anything(),
       "order of forward, dgrad and wgrad of the micro-batches; weft plan --schedule prints it", kMayChange},
      {"parallel.virtual_pipeline_parallel_size", &p.virtual_pipeline_parallel_size, count(0, 1 << 16),
       "chunks of the model on each pipeline stage; 0: as the schedule needs, 2 for interleaved_1f1b and zbv, else 1",
       kMayChange},
      {"parallel.pipeline_layout", &p.pipeline_layout, count(0),
       "blocks of each virtual stage, in the order of forward, as [3, 4, 4, 3]; the embedding goes with the first, the "
       "head with the last; empty: the most even",
       kMayChange},
      {"parallel.recompute", choice(p.recompute), anything(),
       "what is computed again in backward instead of kept; selective: norms, activations, attention core; full: whole "
       "blocks; budget: of each block as little as parallel.memory_budget allows, on each pipeline stage by itself",
       kMayChange},
      {"parallel.memory_budget", &p.memory_budget, anything(),
       "with recompute = \"budget\": what a rank's planned memory may be at most, as \"60GiB\" (KiB, MiB, GiB, TiB; "
       "KB, MB, GB, TB); else empty",
       kMayChange},

      {"checkpoint.save_interval", &c.save_interval, count(0),
       "steps between checkpoints; the last step is always saved, 0: only that", kMayChange},
      {"checkpoint.keep_latest", &c.keep_latest, count(0), "newest checkpoints to keep; 0: all", kMayChange},
      {"checkpoint.keep_best", &c.keep_best, count(0),
       "checkpoints to keep beside them: of the steps with the least held-out loss, which are saved for it; 0: none",
       kMayChange},

      {"checkpoint.async_save", &c.async_save, anything(),
       "write checkpoints while the run goes on: a step waits only until they are copied in memory, which is planned; "
       "the last one is waited for",
       kMayChange},
      {"checkpoint.local_dir", &c.local_dir, anything(),
       "folder on a disk, or in the memory (/dev/shm), of each host, where its ranks keep their shares of the last two "
       "local copies of the run's state, from which it goes on where they are newer than a checkpoint; empty: none",
       kMayChange},
      {"checkpoint.local_interval", &c.local_interval, count(0),
       "steps between local copies, which are written while the run goes on; not where a checkpoint is written; 0: "
       "none",
       kMayChange},
      {"checkpoint.local_neighbour", &c.local_neighbour, anything(),
       "each host also holds the local copies of another host's ranks, so that the newest ones are still there when "
       "one "
       "host is lost: they go to it in slices, while the run goes on",
       kMayChange},

      {"run.dir", &r.run.dir, anything(), "the run folder: records and checkpoints", kMayChange},
      {"run.backend", choice(r.run.backend), anything(),
       "kernels: vectorised ones, those of a GPU, or the plain fp64 ones that all others are tested against; auto: "
       "cuda where there is a GPU that can run the recipe, else cpu"},
      {"run.ranks", choice(r.run.ranks), anything(), "ranks are threads of one process, or MPI processes", kMayChange},
      {"run.threads", &r.run.threads, count(0, 4096), "of each rank; 0: the cores are shared", kMayChange},
      {"run.distributed_timeout_minutes", &r.run.distributed_timeout_minutes, above(0),
       "ranks as processes: how long one waits for another from which nothing comes, before it names it and the run "
       "ends",
       kMayChange},
      {"run.start_timeout_minutes", &r.run.start_timeout_minutes, above(0),
       "ranks as processes: how long they may take to find each other before the run ends, and says what is missing",
       kMayChange},
      {"run.supervise", &r.run.supervise, anything(),
       "weft train does what weft supervise does: it watches the run, and starts it again after a failure "
       "(docs/operations.md)",
       kMayChange},
      {"run.private", &r.run.is_private, anything(),
       "the run folder and what is made in it are their owner's alone, and one that others may write into is refused; "
       "false: the umask says who else has access, as a group that shares the run (docs/operations.md)",
       kMayChange},
      {"run.page", &r.run.page, anything(),
       "weft train serves a live page of the run, to its machine alone, and says its address (docs/live.md)",
       kMayChange},
      {"run.page_port", &r.run.page_port, count(0, 65535),
       "where run.page is served; 0: a port that is free, another one at each start", kMayChange},
      {"run.queue", &r.run.queue, anything(),
       "folder in which the supervised runs of this machine wait for each other: as many go at once as it has cores "
       "for; empty: the run waits for none (docs/operations.md)",
       kMayChange},
      {"run.priority", &r.run.priority, within(-1000, 1000),
       "which run of run.queue goes first: one of higher priority makes lower ones save, wait and go on after it",
       kMayChange},

      {"fleet.min_ranks", &f.min_ranks, count(0),
       "weft supervise: the fewest ranks that the run may go on with when others are gone; with fewer it waits; 0: as "
       "many as the layout has",
       kMayChange},
      {"fleet.max_ranks", &f.max_ranks, count(0),
       "the most that it may grow to when there are more; 0: as many as the layout has", kMayChange},
      {"fleet.may_change",
       &f.may_change,
       {.choices = {"dp", "pp", "tp", "cp", "ep", "zero_stage", "recompute"}},
       "what of [parallel] may be another for that; the global batch and the order of the data stay",
       kMayChange},
      {"fleet.available", &f.available, anything(),
       "shell command that prints how many ranks there may be, or the lines of a hostfile; asked before each attempt; "
       "empty: none",
       kMayChange},
      {"fleet.hosts", &f.hosts, anything(),
       "ranks as processes: hostfile of those that they run on, this host among them (docs/ranks.md); one that does "
       "not answer after a failure is left out; empty: this host, or as the batch system says",
       kMayChange},
      {"fleet.cluster", &f.cluster, anything(),
       "device (H100-SXM) or cluster file by whose forecast a layout is chosen; empty: by a rule of thumb, and this "
       "host's memory",
       kMayChange},
      {"fleet.poll_seconds", &f.poll_seconds, at_least(0),
       "how often the command is asked, or the hostfile read, while the run goes on: where the answer makes another "
       "layout better, the run saves and goes on there; 0: only before attempts",
       kMayChange},
  };
}

}  // namespace weft
