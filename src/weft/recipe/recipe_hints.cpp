#include "weft/recipe/recipe_hints.h"

#include <algorithm>
#include <string_view>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

// Names apart by spaces, the last part of a key or all of it; what they are here; what else is to be known.
struct KeyAlias {
  std::string_view names, key, remark = "";
};
constexpr KeyAlias kKeys[] = {
    {"model_name_or_path base_model model_name pretrained_model_name_or_path hf_model load "
     "checkpoint_path hf_assets_path",
     "model.path"},
    {"num_layers num_hidden_layers hidden_size num_attention_heads ffn_hidden_size flavor", "model.path",
     "the config.json of the model's folder says its shape"},
    {"datasets dataset dataset_path train_file train_files train_data data_path train_data_path dataset_name",
     "data.train"},
    {"validation_file eval_file test_datasets valid_data eval_dataset val_data valid_data_path", "data.valid"},
    {"val_set_size validation_split split eval_fraction test_size", "data.valid_fraction"},
    {"tokenizer_type tokenizer_name tokenizer_path tokenizer_name_or_path tokenizer_config tokenizer_model",
     "data.tokenizer"},
    {"chat_template_path chat_template_jinja", "data.chat_template"},
    {"sample_packing packing_strategy pack_sequences", "data.packing", "packing = \"first-fit\" packs whole documents"},
    {"text_column text_field dataset_text_field json_keys", "data.text_key"},
    {"block_size context_length context_size context sequence_len sequence_length max_seq_length max_seq_len seq_len "
     "cutoff_len max_length n_ctx model_max_length",
     "train.seq_length"},
    {"train_batch_size total_batch_size", "train.global_batch_size",
     "it counts the samples of a step, of all ranks together"},
    {"per_device_train_batch_size per_gpu_train_batch_size device_batch_size micro_bs local_batch_size",
     "train.micro_batch_size"},
    {"gradient_accumulation_steps grad_accum_steps accumulate_grad_batches gradient_accumulation",
     "train.global_batch_size",
     "a step of so many samples is cut into micro-batches of train.micro_batch_size by itself"},
    {"num_train_epochs num_epochs n_epochs max_epochs epoch", "train.epochs"},
    {"max_steps num_steps total_steps training_steps max_iters num_train_steps num_iters n_steps steps",
     "train.train_iters"},
    {"train_samples", "train.train_iters", "a step has train.global_batch_size samples"},
    {"bf16 fp16 fp32 tf32 mixed_precision torch_dtype params_dtype amp half fp8", "train.precision",
     "it is one of \"f32\", \"bf16\", \"fp16\", \"auto\""},
    {"eval_steps evaluation_steps val_check_interval eval_every", "train.eval_interval"},
    {"max_eval_batches limit_val_batches eval_batches", "train.eval_iters"},
    {"logging_steps log_every log_every_n_steps log_freq", "train.log_interval"},
    {"deterministic deterministic_mode full_determinism", "train.numerics",
     "every run repeats to the bit; \"invariant\" gives the same bits for any parallel.dp too"},
    {"skip_step_optimizer spiky_loss_factor", "train.on_spike"},
    {"sigma_factor skip_step_sigma_factor", "train.spike_sigma_factor"},
    {"rolling_interval_length", "train.spike_window"},
    {"random_seed manual_seed data_seed", "train.seed"},
    {"learning_rate base_lr max_lr peak_lr lr_max", "optimizer.lr"},
    {"minimum_lr lr_min min_learning_rate learning_rate_min end_lr", "optimizer.min_lr"},
    {"lr_scheduler_type lr_scheduler scheduler lr_schedule schedule decay_lr", "optimizer.lr_decay_style"},
    {"warmup_steps lr_warmup_steps num_warmup_steps warmup_iters warmup lr_warmup_samples",
     "optimizer.lr_warmup_iters"},
    {"warmup_ratio lr_warmup_fraction", "optimizer.lr_warmup_iters", "it counts steps"},
    {"decay_steps lr_decay_steps lr_decay_samples", "optimizer.lr_decay_iters"},
    {"wd l2 weight_decay_rate", "optimizer.weight_decay"},
    {"beta1 betas adam_betas", "optimizer.adam_beta1", "the other is optimizer.adam_beta2"},
    {"beta2", "optimizer.adam_beta2"},
    {"eps adam_epsilon epsilon", "optimizer.adam_eps"},
    {"max_grad_norm grad_clip gradient_clip gradient_clipping gradient_clip_val grad_norm_clip clip_norm max_norm",
     "optimizer.clip_grad"},
    {"optim optimizer_type optimizer_name", "optimizer.name"},
    {"sgd_momentum", "optimizer.momentum"},
    {"min_quant_size", "optimizer.min_8bit_size"},
    {"bnb_4bit_quant_type bnb_quant_type quantization_type quantization_bit", "adapter.quant_type"},
    {"load_in_4bit load_in_8bit quantize_base", "adapter.kind",
     "\"qlora\" keeps the frozen matrices in codes; adapter.quant_type says which"},
    {"use_dora peft_use_dora lora_use_dora dora", "adapter.kind", "\"dora\", or beside a base in codes \"qdora\""},
    {"data_parallel_size data_parallel dp_size data_parallel_shard_degree data_parallel_replicate_degree",
     "parallel.dp"},
    {"tensor_model_parallel_size tensor_parallel_size tensor_parallel tp_size tensor_parallel_degree", "parallel.tp"},
    {"pipeline_model_parallel_size pipeline_parallel_size pipeline_parallel pp_size pipeline_parallel_degree",
     "parallel.pp"},
    {"context_parallel_size context_parallel_degree context_parallel cp_size sequence_parallel_degree", "parallel.cp"},
    {"cp_communication_type context_parallel_rotate_method", "parallel.cp_comm_type"},
    {"expert_model_parallel_size expert_parallel_size expert_parallel_degree", "parallel.ep"},
    {"num_layers_per_virtual_pipeline_stage virtual_pipeline_model_parallel_size interleave",
     "parallel.virtual_pipeline_parallel_size"},
    {"deepspeed fsdp fsdp_config zero zero_optimization sharding_strategy use_distributed_optimizer "
     "distributed_optimizer",
     "parallel.zero_stage", "1 shards the optimizer's state, 2 gradients too, 3 weights too"},
    {"gradient_checkpointing activation_checkpointing activation_checkpoint activation_checkpoint.mode "
     "recompute_granularity recompute_activations recompute_method",
     "parallel.recompute", "it is one of \"none\", \"selective\", \"full\", \"budget\""},
    {"activation_memory_budget memory_limit max_memory gpu_memory", "parallel.memory_budget",
     "with parallel.recompute = \"budget\""},
    {"save_steps save_every save_freq checkpoint_interval checkpoint.interval checkpoint_every",
     "checkpoint.save_interval"},
    {"save_total_limit keep_last_n max_checkpoints keep_latest_k", "checkpoint.keep_latest"},
    {"load_best_model_at_end save_top_k keep_best_k metric_for_best_model early_stopping_patience",
     "checkpoint.keep_best"},
    {"replication local_replication replication_factor replication_jump checkpoint.replication",
     "checkpoint.local_neighbour", "beside checkpoint.local_dir and checkpoint.local_interval"},
    {"resume resume_from_checkpoint resume_from auto_resume_from_checkpoints init_from", "run.dir",
     "the same command again resumes; `weft train --from CHECKPOINT RECIPE run.dir=NEW` resumes from a chosen "
     "checkpoint"},
    {"output_dir out_dir save save_dir logging_dir checkpoint_dir exp_dir dump_folder checkpoint.folder", "run.dir"},
    {"device device_type accelerator", "run.backend"},
    {"lora_r lora_rank", "adapter.rank"},
    {"lora_target_modules target_modules lora_targets", "adapter.targets"},
    {"num_threads n_threads omp_num_threads", "run.threads"},
};

struct ValueAlias {
  std::string_view key, values, ours, remark = "";
};
constexpr ValueAlias kValues[] = {
    {"optimizer.name", "adam", "adamw",
     "with optimizer.weight_decay = 0 it is Adam; Adam's own decay, which goes through its moments, is not done"},
    {"optimizer.name",
     "adamw_torch adamw_torch_fused adamw_hf adamw_fused paged_adamw_32bit fused_adam adamw_apex_fused", "adamw"},
    {"optimizer.name", "adamw_8bit adamw_bnb_8bit paged_adamw_8bit adamw8bit_bnb", "adamw8bit",
     "matrices of optimizer.min_8bit_size elements and more have their moments in 8 bits"},
    {"optimizer.name", "momentum", "sgd", "with optimizer.momentum"},
    {"optimizer.lr_decay_style", "constant_with_warmup none", "constant", "optimizer.lr_warmup_iters warms up"},
    {"optimizer.lr_decay_style", "cosine_with_min_lr cosine_annealing cosineannealinglr", "cosine",
     "optimizer.min_lr is where it ends"},
    {"optimizer.lr_decay_style", "warmup_stable_decay", "wsd",
     "optimizer.lr_wsd_decay_iters is the length of the fall"},
    {"optimizer.lr_decay_style", "linear_with_warmup", "linear", "optimizer.lr_warmup_iters warms up"},
    {"train.precision", "bfloat16 bf16_mixed bf16-mixed", "bf16"},
    {"train.precision", "float16 half f16 16 16-mixed", "fp16"},
    {"train.precision", "float32 float full single tf32 32 32-true", "f32"},
    {"train.precision", "float64 double fp64", "f64", "of run.backend = \"ref\" alone"},
    {"parallel.recompute", "uniform block true", "full"},
    {"parallel.recompute", "false off", "none"},
    {"parallel.pipeline_schedule", "interleaved interleaved1f1b", "interleaved_1f1b"},
    {"parallel.pipeline_schedule", "zero_bubble zb zbh1", "zb_h1"},
    {"parallel.pipeline_schedule", "zbvzerobubble zb_v", "zbv"},
    {"run.backend", "gpu nvidia cuda:0", "cuda"},
};

constexpr std::pair<std::string_view, std::string_view> kMain[] = {
    {"model", "path"}, {"data", "train"}, {"optimizer", "name"}, {"run", "dir"}};

std::string without_separators(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string text = lower_ascii(std::string(name));
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

const ValueAlias* value_alias(const std::string& key, const std::string& value) {
  for (const ValueAlias& a : kValues)
    if (a.key == key && (has_word(a.values, lower_ascii(value)) || has_word(a.values, without_separators(value))))
      return &a;
  return nullptr;
}

std::string question(std::string_view meant, std::string_view remark) {
  return fmt::format("did you mean {}?{}{}", meant, remark.empty() ? "" : " ", remark);
}

}  // namespace

std::string hint_of_key(const std::string& name) {
  const std::string whole = without_separators(name), last = without_separators(name.substr(name.rfind('.') + 1));
  for (const KeyAlias& a : kKeys)
    if (has_word(a.names, whole) || has_word(a.names, last)) return question(a.key, a.remark);
  return "";
}

std::string hint_of_value(const std::string& key, const std::string& value) {
  const ValueAlias* alias = value_alias(key, value);
  return alias == nullptr ? "" : question(in_quotes(std::string(alias->ours)), alias->remark);
}

std::string hint_of_section(const std::string& section, const std::string& value) {
  for (const auto& [name, key] : kMain) {
    if (name != section) continue;
    const ValueAlias* alias = value_alias(fmt::format("{}.{}", section, key), value);
    const std::string ours = alias == nullptr ? value : std::string(alias->ours);
    return fmt::format("[{}] {} = {}{}{}", section, key, in_quotes(ours),
                       alias == nullptr || alias->remark.empty() ? "" : ": ", alias == nullptr ? "" : alias->remark);
  }
  return "";
}

}  // namespace weft
