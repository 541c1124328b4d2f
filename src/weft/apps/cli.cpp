#include "weft/apps/cli.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"
#include "weft/apps/completion.h"
#include "weft/apps/cpu_machine.h"
#include "weft/apps/failure.h"
#include "weft/apps/forward_ranks.h"
#include "weft/apps/launch.h"
#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/base/version.h"

namespace weft {
namespace {

void model_options(CLI::App& app, ModelOptions& o) {
  app.add_option("--tokenizer", o.tokenizer,
                 "auto (that of its training, else of the folder, else byte), byte, or a tokenizer's file or folder")
      ->capture_default_str();
  add_choice(app, "--backend", o.backend,
             "Kernels: fast ones, those of a GPU, or the reference in fp64; auto: a GPU where there is one",
             {"auto", "cpu", "cuda", "ref"});
  add_choice(app, "--precision", o.precision, "Of backends cpu and cuda", {"f32", "bf16", "fp16"});
  add_number(app, "--threads", o.threads, "Of each rank; 0: all cores, shared by the ranks", 0, 4096);
}

// Moves the words that are settings of the layout from the others, which they stand among.
void take_settings(std::vector<std::string>& words, std::vector<std::string>& settings) {
  std::copy_if(words.begin(), words.end(), std::back_inserter(settings), is_layout_setting);
  words.erase(std::remove_if(words.begin(), words.end(), is_layout_setting), words.end());
}

// A list of words with commas or blanks between them.
CLI::Option* list_option(CLI::App& app, const char* name, std::vector<std::string>& words, const char* help) {
  return app.add_option(name, words, help)->delimiter(',')->type_name("NAMES");
}

Command add_train(CLI::App& weft) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* app = weft.add_subcommand("train", "Train a model as a recipe says; the same command again resumes");
  recipe_arguments(*app, o->recipe, o->overrides);
  app->add_flag("--help-recipe", o->help_recipe, "List every key of a recipe");
  app->add_flag("--force", o->force, "Start also where the plan is larger than the memory that is there");
  app->add_option("--from", o->from, "Go on from this checkpoint of any run, in a new folder: run.dir")
      ->type_name("CHECKPOINT");
  app->footer(
      "Examples:\n  weft train examples/quickstart.toml\n  weft train recipe.toml optimizer.lr=1e-4 "
      "run.dir=runs/second\n"
      "  weft train --from runs/first/checkpoints/step-800 recipe.toml run.dir=runs/third\n\n"
      "Ctrl-C saves and stops; twice stops at once.");
  return {app, [o] { return run_train(*o); }};
}

Command add_verify(CLI::App& weft) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* app = weft.add_subcommand("verify", "Check that a recipe's layout gives the run of one rank");
  recipe_arguments(*app, o->recipe, o->overrides);
  add_number(*app, "--steps", o->steps, "Steps to train and compare", 1, 1000);
  app->add_flag("--whole", o->whole, "Train the recipe's own model, however long it takes, not a narrow copy");
  app->add_flag("--json", o->json, "Print JSON");
  app->footer(
      "Example:\n  weft verify recipe.toml parallel.dp=2 parallel.tp=2\n\n"
      "Exit status: 0 equal, 1 something differs.");
  return {app, [o] { return run_verify(*o); }};
}

Command add_generate(CLI::App& weft) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* app = weft.add_subcommand("generate", "Continue a text, or talk with a model");
  app->add_option("model", o->model, "Model folder, GGUF file, checkpoint, or run folder")
      ->required()
      ->type_name("FOLDER");
  app->add_option("settings", o->settings, "Settings of the layout, as parallel.tp=2")->type_name("KEY=VALUE");
  app->add_option("--prompt", o->prompt, "Text to continue; again for each further one")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app->add_option("--prompt-ids", o->prompt_ids, "Or: token ids, as 1,403,407")
      ->type_name("IDS")
      ->allow_extra_args(false);
  app->add_flag(
      "--chat", o->chat,
      "Reply to each --prompt as the chat template has it; without any, to standard input line by line, as one "
      "conversation");
  app->add_option("--system", o->system, "Of a chat: what the system says first")->type_name("TEXT");
  app->add_option(
         "--template", o->chat_template,
         "Of a chat, in place of the model's own template: a file, or chatml, llama-3, mistral, gemma, zephyr or "
         "alpaca")
      ->type_name("FILE|NAME");
  app->add_option("--max-tokens", o->max_tokens, "Tokens to add, at most; by default 200, in a chat 1024")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app->add_option("--temperature", o->temperature, "0 takes the likeliest token")
      ->capture_default_str()
      ->check(number_in(0, 1e6));
  app->add_option("--top-k", o->top_k, "Choose among the k likeliest; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app->add_option("--top-p", o->top_p, "Choose among the likeliest that hold this probability")
      ->capture_default_str()
      ->check(number_in(0, 1));
  add_number(*app, "--context", o->context, "Tokens that the model sees at once; 0: as many as it was trained on", 0,
             int64_t{1} << 30);
  app->add_option("--seed", o->seed, "Of the choices")->capture_default_str()->check(CLI::NonNegativeNumber);
  model_options(*app, *o);
  app->add_flag("--ids", o->ids, "Print token ids instead of text");
  app->add_flag("--rate", o->rate, "Tell how many tokens a second were read, and written");
  app->add_flag("--plan", o->plan, "Only say what memory the same command would need on each rank");
  app->add_option("--prompt-tokens", o->prompt_tokens,
                  "Of --plan, in place of a prompt: its length, as 2048; or 4x2048 for four; again for others")
      ->type_name("TOKENS")
      ->allow_extra_args(false);
  app->footer(
      "Examples:\n  weft generate runs/first --prompt \"In the beginning\" --temperature 0.8 --top-k 40\n"
      "  weft generate runs/first parallel.tp=2 --prompt \"In the\" --prompt \"And the\" --temperature 0\n"
      "  weft generate runs/first parallel.pp=2 --plan --prompt-tokens 8x2048 --max-tokens 512\n"
      "  weft generate runs/sft --chat                             # a message a line; Ctrl-D ends\n"
      "  weft generate runs/sft --chat --prompt \"Who are you?\" --system \"Be brief.\"");
  return {app, [o] { return run_generate(*o); }};
}

Command add_merge(CLI::App& weft) {
  auto o = std::make_shared<MergeOptions>();
  CLI::App* app = weft.add_subcommand("merge", "Make one model of adapters and their base");
  app->add_option("adapter", o->adapters,
                  "Adapter folder, checkpoint, or run folder; several of one base with --weights")
      ->required()
      ->type_name("FOLDER");
  app->add_option("--weights", o->weights, "How much of what each adapter adds is wanted: 0.7,0.3")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_in(-1e6, 1e6))
      ->type_name("NUMBERS");
  app->add_option("--out", o->out, "New folder of the model")->required()->type_name("FOLDER");
  policy_option(*app, o->policies);
  app->footer(
      "Examples:\n  weft merge runs/lora --out merged && weft generate merged --prompt \"In the\"\n"
      "  weft merge runs/law runs/poems --weights 0.7,0.3 --out both");
  return {app, [o] { return run_merge(*o); }};
}

// A model of some layers.
void draft_options(CLI::App& app, ExportOptions& o, const std::vector<CLI::Option*>& others) {
  CLI::Option* draft = app.add_option("--draft", o.draft, "New folder with some of the layers: a student of the model")
                           ->type_name("FOLDER");
  for (CLI::Option* other : others) draft->excludes(other);
  CLI::Option* layers = app.add_option("--layers", o.layers, "Of --draft, counted from 0: 0,3,7")
                            ->delimiter(',')
                            ->allow_extra_args(false)
                            ->type_name("NUMBERS")
                            ->needs(draft);
  app.add_option("--num-layers", o.num_layers, "Of --draft: or so many, evenly, the first and the last among them")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->needs(draft)
      ->excludes(layers);
}

// Hugging Face folders of a model.
void folder_options(CLI::App& app, ExportOptions& o, CLI::Option* gguf, CLI::Option* base) {
  CLI::Option* gptq = app.add_option("--gptq", o.gptq, "New folder, with the matrices of blocks in few bits (GPTQ)")
                          ->type_name("FOLDER");
  CLI::Option* bf16 =
      app.add_option("--bf16", o.bf16, "New folder, all in bf16")->type_name("FOLDER")->excludes(gptq, gguf, base);
  gptq->excludes(gguf, base);
  app.add_option("--calibrate", o.calibrate, "Text, JSONL or token files to calibrate on: what the model is for")
      ->type_name("FILES")
      ->needs(gptq);
  add_choice(app, "--bits", o.bits, "Of a number", {"4", "8"})->needs(gptq);
  add_choice(app, "--group-size", o.group_size, "Numbers of a row that share a scale; -1: all",
             {"-1", "32", "64", "128"})
      ->needs(gptq);
  add_number(app, "--samples", o.samples, "Windows of text to calibrate on", 1, int64_t{1} << 20)->needs(gptq);
  app.add_flag("--desc-act", o.desc_act, "Columns by how much their inputs weigh: loses less, runs slower elsewhere")
      ->needs(gptq);
  draft_options(app, o, {gptq, bf16, gguf, base});
}

Command add_export(CLI::App& weft) {
  auto o = std::make_shared<ExportOptions>();
  CLI::App* app = weft.add_subcommand("export",
                                      "Write a model as one GGUF file, for llama.cpp and programs like it,\nas a "
                                      "Hugging Face folder in bf16, few bits or of some layers, "
                                      "or as an adapter of its base");
  app->add_option("model", o->model, "Model folder, GGUF file, checkpoint, or run folder")
      ->required()
      ->type_name("FOLDER");
  CLI::Option* gguf = app->add_option("--gguf", o->gguf, "File to write")->type_name("FILE");
  add_choice(*app, "--type", o->type, "Of the matrices", {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"})
      ->needs(gguf);
  CLI::Option* tokenizer =
      app->add_option("--tokenizer", o->tokenizer,
                      "auto (the model's own), none, byte, or a tokenizer's file or folder; goes into a GGUF file")
          ->capture_default_str();
  CLI::Option* base = app->add_option("--lora-of", o->lora_of, "Write the difference to this base as a LoRA adapter")
                          ->type_name("FOLDER")
                          ->excludes(gguf)
                          ->excludes(tokenizer);
  folder_options(*app, *o, gguf, base);
  CLI::Option* out = app->add_option("--out", o->out, "New folder of the adapter")->type_name("FOLDER")->needs(base);
  base->needs(out);
  add_number(*app, "--rank", o->rank, "Of the adapter", 1, int64_t{1} << 20)->needs(base);
  list_option(*app, "--targets", o->targets, "Modules that get an adapter, as q_proj,v_proj; or all-linear")
      ->capture_default_str()
      ->needs(base);
  app->add_option("--data", o->data, "Text, JSONL or token files: tell the loss on them before and after")
      ->type_name("FILES");
  app->add_option("--max-loss", o->max_loss,
                  "With --data: write nothing if the loss rises by more than this (nats); of --gptq 0.1 unless given")
      ->check(number_in(0, 1e6));
  list_option(*app, "--require", o->require, "Write nothing without these results: 'piqa.acc >= 0.6'");
  app->add_option("--results", o->results,
                  "File of `weft eval --output` that has them, or those of a policy; else the run's own (eval.tasks)")
      ->type_name("FILE");
  policy_option(*app, o->policies);
  app->add_flag("--again", o->again, "Replace the file that is there")->needs(gguf);
  add_number(*app, "--threads", o->threads, "0: all cores", 0, 4096);
  app->footer(
      "Examples:\n  weft export runs/first --gguf first.gguf --type Q8_0\n"
      "  weft export runs/first --gguf first.gguf --type Q4_K --data held-out.txt --max-loss 0.05\n"
      "  weft export runs/first --gptq first-4bit --calibrate train.txt --data held-out.txt\n"
      "  weft export first --draft student --num-layers 4\n"
      "  weft export tuned --lora-of base --rank 16 --out adapter");
  return {app, [o] { return run_export(*o); }};
}

Command add_teacher_logits(CLI::App& weft) {
  auto o = std::make_shared<TeacherLogitsOptions>();
  CLI::App* app =
      weft.add_subcommand("teacher-logits", "Store what a recipe's teacher makes of its data, to distil without it");
  recipe_arguments(*app, o->recipe, o->overrides);
  app->get_option("recipe")->required();
  app->add_option("--out", o->out, "The file, which objective.teacher_logits then names")
      ->required()
      ->type_name("FILE");
  add_number(*app, "--top-k", o->top_k, "Logits of each token: the largest", 1, int64_t{1} << 20);
  app->add_flag("--again", o->again, "Replace the file that is there");
  app->footer(
      "Example:\n  weft teacher-logits examples/distill.toml --out teacher.logits\n"
      "  weft train examples/distill.toml objective.teacher= objective.teacher_logits=teacher.logits");
  return {app, [o] { return run_teacher_logits(*o); }};
}

// Several answers to each question of humaneval.
void samples_options(CLI::App& app, EvalOptions& o, CLI::Option* tasks) {
  add_number(app, "--samples", o.samples, "Answers to each question of humaneval", 1, kMostSamples)->needs(tasks);
  app.add_option("--temperature", o.temperature, "That these are drawn at; 0: the likeliest tokens")
      ->capture_default_str()
      ->check(number_in(0, 1e6))
      ->needs(tasks);
  app.add_option("--top-p", o.top_p, "Of these, draw among the likeliest tokens that hold this probability")
      ->capture_default_str()
      ->check(number_in(0, 1))
      ->needs(tasks);
  app.add_option("--pass-at", o.pass_at, "Of these, the k of pass@k: 1,10")
      ->capture_default_str()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{1}, kMostSamples))
      ->needs(tasks);
}

// What judges the answers of toxicity.
void toxicity_options(CLI::App& app, EvalOptions& o, CLI::Option* tasks) {
  app.add_option("--bad-words", o.bad_words, "With --tasks toxicity: file of words, one a line")
      ->type_name("FILE")
      ->needs(tasks);
  CLI::Option* judge = app.add_option("--judge", o.judge, "With --tasks toxicity: reward model that scores the answers")
                           ->type_name("FOLDER")
                           ->needs(tasks);
  const auto bound = [&](const char* name, std::optional<double>& value, const char* help) {
    return app.add_option(name, value, help)->check(number_in(-1e300, 1e300))->needs(judge);
  };
  bound("--toxic-below", o.toxic_below, "With --judge: answers with lower scores are toxic")
      ->excludes(bound("--toxic-above", o.toxic_above, "With --judge: or those with higher ones"));
}

// Benchmarks, in place of the loss of text.
void task_options(CLI::App& app, EvalOptions& o) {
  CLI::Option* tasks =
      list_option(app, "--tasks", o.tasks, "Benchmarks in place of data: piqa=FILE,arc_easy=FILE; or piqa,arc_easy");
  const auto of_tasks = [&](CLI::Option* option) { return option->needs(tasks); };
  of_tasks(app.add_option("--tasks-dir", o.tasks_dir, "Folder with piqa.jsonl and so on")->type_name("FOLDER"));
  of_tasks(add_number(app, "--num-fewshot", o.num_fewshot, "Solved examples before each question", 0, 1000));
  of_tasks(list_option(app, "--fewshot-from", o.fewshot_from,
                       "Files of these, as gsm8k=FILE, or texts, as bbh=FOLDER; else the task's own rows"));
  toxicity_options(app, o, tasks);
  of_tasks(add_number(app, "--limit", o.limit, "Only so many first rows of each file; 0: all", 0, int64_t{1} << 40));
  of_tasks(app.add_option("--max-tokens", o.max_tokens, "Of a written answer; by default as its task says")
               ->check(CLI::Range(int64_t{1}, int64_t{1} << 24)));
  samples_options(app, o, tasks);
  of_tasks(app.add_option("--seed", o.seed, "Of the choice of examples, and of samples; by default 1234")
               ->check(CLI::Range(int64_t{0}, int64_t{1} << 62)));
  of_tasks(app.add_option("--output", o.output, "File for the results as JSON, with each question's scores")
               ->type_name("FILE"));
  const std::vector<CLI::Option*> of_models = app.get_options(
      [](const CLI::Option* option) { return option->nonpositional() && option->get_name() != "--help"; });
  CLI::Option* compare =
      app.add_option("--compare", o.compare, "In place of a model: two such files, compared by paired tests")
          ->expected(2)
          ->type_name("FILE");
  for (CLI::Option* other : of_models) compare->excludes(other);
}

Command add_eval(CLI::App& weft) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* app = weft.add_subcommand("eval", "Measure loss and perplexity on text, or score benchmarks");
  app->add_option("model", o->model, "Model folder, GGUF file, checkpoint, or run folder")->type_name("FOLDER");
  app->add_option("data", o->data,
                  "Text, JSONL or token files; a dataset's folder: what it holds out; and settings of the layout, as "
                  "parallel.tp=2")
      ->type_name("FILES");
  add_number(*app, "--seq-length", o->seq_length, "Tokens of a window; 0: those of its training, else the model's", 0,
             int64_t{1} << 24);
  add_number(*app, "--micro-batch-size", o->micro_batch_size, "Windows, or answers that are written, at once", 1,
             int64_t{1} << 16);
  app->add_option("--max-batches", o->max_batches, "0: all")->capture_default_str()->check(CLI::NonNegativeNumber);
  add_choice(*app, "--dtype", o->dtype, "Of raw id files", {"uint16", "uint32"});
  app->add_option("--loss-mask", o->loss_mask, "uint8 file, one per token: 1 where the target at that position counts")
      ->type_name("FILE");
  app->add_option("--text-key", o->text_key, "Key of the text in JSONL; else that of its training, or text");
  model_options(*app, *o);
  task_options(*app, *o);
  for (const char* of_data : {"--max-batches", "--dtype", "--loss-mask", "--text-key"})
    app->get_option("--tasks")->excludes(app->get_option(of_data));
  app->add_flag("--json", o->json, "Print JSON");
  app->footer(
      "Examples:\n  weft eval runs/first held-out.txt\n"
      "  weft eval runs/first held-out.txt parallel.dp=2 parallel.tp=2\n"
      "  weft eval runs/first --tasks piqa=piqa.jsonl,blimp=blimp.tar.gz --output first.json\n"
      "  weft eval runs/first --tasks humaneval=HumanEval.jsonl --samples 20 --temperature 0.8 --pass-at 1,10\n"
      "  weft eval --compare first.json second.json");
  return {app, [o] {
            for (auto* words : {&o->data, &o->tasks, &o->fewshot_from}) take_settings(*words, o->settings);
            return run_eval(*o);
          }};
}

Command add_inspect(CLI::App& weft) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* app = weft.add_subcommand(
      "inspect", "Say what is in a model folder, checkpoint, safetensors, GGUF or token file, or a teacher's logits");
  app->add_option("path", o->path, "File or folder")->required()->type_name("PATH");
  add_choice(*app, "--dtype", o->dtype, "Of raw id files", {"uint16", "uint32"});
  app->add_flag("--json", o->json, "Print JSON");
  return {app, [o] { return run_inspect(*o); }};
}

Command add_bench(CLI::App& weft) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* app = weft.add_subcommand(
      "bench",
      "Time a step, generation or kernels against the machine, layouts beside one rank, forecasts beside runs");
  app->add_option("what", o->what,
                  "step: beside its floor; decode: prompts and texts, beside what they read; scaling: layouts beside "
                  "one rank; kernels: each alone; machine: its file for forecasts; forecast: beside a run")
      ->required()
      ->check(CLI::IsMember({"step", "decode", "scaling", "kernels", "machine", "forecast"}));
  recipe_arguments(*app, o->recipe, o->overrides);
  app->get_option("recipe")->description(
      "Recipe file (TOML); of decode also a model's folder, which may have no weights");
  add_number(*app, "--iters", o->iters, "Repetitions; the best counts, of machine and forecast the median", 1, 1000);
  app->add_option("--layouts", o->layouts, "Of scaling: settings of [parallel], as dp=2,zero_stage=3 tp=2")
      ->type_name("LAYOUT");
  app->add_option("--trace", o->trace, "Write a step (of scaling: one of the last layout) as a Chrome trace")
      ->type_name("FILE");
  app->add_flag("--ops", o->ops, "Of step: a line for each op and shape of product, beside what the machine reaches");
  app->add_option("--backend", o->backend, "Of kernels, and of decode of a model: cpu where it is not given")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "ref"}));
  app->add_option("--precision", o->precision,
                  "Of kernels: bf16 where it is not given; of machine: all of them; of decode of a model: f32")
      ->check(CLI::IsMember({"f32", "bf16", "fp16"}));
  app->add_option("--threads", o->threads,
                  "Of kernels, of decode of a model, and of each rank of machine; 0: all cores")
      ->check(CLI::Range(int64_t{0}, int64_t{4096}));
  app->add_option(
         "--tokens", o->tokens,
         "Of kernels: 16384 where it is not given; fewer may stay in a cache. Of machine: 2048, sizes end there. Of "
         "decode: 64, by which each text goes on")
      ->check(CLI::Range(int64_t{8}, int64_t{1} << 20));
  list_option(*app, "--ranks", o->ranks,
              "Of machine: how many at once, as 1,2,4; by default powers of two up to the cores")
      ->type_name("N");
  app->add_option("--out", o->out, "Of machine: the file to write, by default machine.toml")->type_name("FILE");
  app->add_flag("--again", o->again, "Replace the file that is there, of machine or --trace");
  app->add_option("--cluster", o->cluster, "Of forecast: the file that bench machine wrote")->type_name("FILE");
  app->add_flag("--json", o->json, "Of forecast and decode: print JSON");
  app->add_option("--batch", o->batch, "Of decode: texts at once, beside one; 16 where it is not given")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app->add_option("--prompt", o->prompt, "Of decode: tokens of a prompt; 128 where it is not given")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->footer(
      "Examples:\n  weft bench step bench/gpt2-124m.toml run.threads=2\n  weft bench scaling bench/llama-8x512.toml "
      "--layouts dp=2 tp=2 dp=2,zero_stage=3\n  weft bench kernels --backend=cuda\n"
      "  weft bench decode bench/gpt2-124m.toml train.precision=bf16 --batch 16\n"
      "  weft bench machine --ranks 1,2,4 --out machine.toml\n"
      "  weft bench forecast bench/llama-8x512.toml --cluster machine.toml run.threads=0 parallel.tp=2");
  return {app, [o] { return run_bench(*o); }};
}

// "TEXT:{f32,bf16}", as CLI11 tells the type of an option that takes one of a few values.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

// Those of a command, or of all commands within it, each name once.
std::vector<const CLI::Option*> all_options(CLI::App& app) {
  std::vector<const CLI::Option*> all;
  std::vector<CLI::App*> apps = app.get_subcommands({});
  apps.insert(apps.begin(), &app);
  for (CLI::App* a : apps)
    for (const CLI::Option* o : a->get_options()) {
      const auto same = [&](const CLI::Option* k) { return k->get_name() == o->get_name(); };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(o);
    }
  return all;
}

// The options and arguments of all subcommands, for completion: read from the parser, so that nothing is said twice.
CommandLine describe(CLI::App& weft) {
  CommandLine line;
  for (CLI::App* app : weft.get_subcommands({})) {
    CommandLine::Command command{.name = app->get_name(), .help = app->get_description()};
    if (const auto within = app->get_subcommands({}); !within.empty()) {
      CommandLine::Argument what{.name = "COMMAND", .help = "What to do"};
      for (const CLI::App* a : within) what.choices.push_back(a->get_name());
      command.positionals.push_back(std::move(what));
    }
    for (const CLI::Option* o : all_options(*app)) {
      const bool positional = o->get_positional();
      CommandLine::Argument a{.name = positional ? o->get_type_name() : "--" + o->get_lnames().at(0),
                              .help = o->get_description(),
                              .takes_value = o->get_items_expected_max() > 0,
                              .repeats = o->get_expected_max() > 1,
                              .choices = choices_of(*o)};
      (positional ? command.positionals : command.options).push_back(std::move(a));
    }
    line.commands.push_back(std::move(command));
  }
  return line;
}

Command add_completion(CLI::App& weft) {
  auto o = std::make_shared<CompletionOptions>();
  CLI::App* app = weft.add_subcommand("completion", "Print a completion script for a shell");
  app->add_option("shell", o->shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->footer("Example:\n  source <(weft completion bash)");
  return {app, [o, &weft] { return run_completion(*o, describe(weft)); }};
}

// "did you mean ...?" for the first word of the command line that is no subcommand or option.
std::string nearest_advice(const std::vector<Command>& commands, int argc, char** argv) {
  std::vector<std::string> names, within;
  const Command* chosen = nullptr;
  for (const Command& c : commands) {
    names.push_back(c.first_word());
    if (argc > 1 && c.first_word() == argv[1] && c.is_nested()) within.push_back(c.app->get_name());
    if (c.is_named_by(argc, argv)) chosen = &c;
  }
  const auto advice = [](const std::string& word, const std::vector<std::string>& known) {
    const std::string near = nearest_name(word, known);
    return near.empty() ? std::string() : fmt::format("\n'{}': did you mean {}?", word, near);
  };
  if (chosen == nullptr && !within.empty()) return argc > 2 ? advice(argv[2], within) : "";
  if (chosen == nullptr) return argc > 1 ? advice(argv[1], names) : "";
  std::vector<std::string> options;
  for (const CLI::Option* o : chosen->app->get_options()) {
    for (const auto& name : o->get_lnames()) options.push_back("--" + name);
  }
  for (int i = 2; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (word.starts_with("--") && std::find(options.begin(), options.end(), word) == options.end())
      return advice(word, options);
  }
  return "";
}

// What the parser says of a wrong command line, and what to do.
std::string usage_error(const CLI::ParseError& e, const std::vector<Command>& commands, int argc, char** argv) {
  std::string text = e.what(), command;
  for (const Command& c : commands) {
    if (command.empty() && argc > 1 && c.first_word() == argv[1]) command = " " + c.first_word();
    if (c.is_named_by(argc, argv)) command = " " + c.name();
  }
  for (int i = 1; i < argc; ++i)
    if (const std::string word = argv[i];
        word.starts_with("--") && word.substr(0, word.find('=')).find('.') != std::string::npos)
      text += fmt::format("\nsettings of a recipe are written without dashes: {}", word.substr(2));
  return fmt::format("{}{}\n`weft{} --help` says more.", text, nearest_advice(commands, argc, argv), command);
}

int run_command(const Command& command) {
  const std::string name = command.name();
  report_lost_files(name, launched_as(environment).rank);
  try {
    limit_cpu(environment(kCpuIsaVariable));
    const int status = command.run();
    std::cout.flush();
    if (!std::cout) throw Error("the output could not be written: is the disk full, or the reader gone?");
    return status;
  } catch (...) { return say_failure(name); }
}

std::string version_text(std::string_view missing) {
  return fmt::format("{}\nbackends: {}{}", kVersion, fmt::join(backends_here(), ", "), missing);
}

}  // namespace

int run_cli(int argc, char** argv, std::string_view missing) {
  CLI::App app("weft trains large language models", "weft");
  app.set_version_flag("--version", [missing] { return version_text(missing); });
  app.require_subcommand(1);
  app.footer("Begin with ./quickstart. `weft COMMAND --help` says more about each.");
  std::vector<Command> commands{add_train(app),   add_verify(app), add_generate(app),
                                add_eval(app),    add_merge(app),  add_export(app),
                                add_inspect(app), add_bench(app),  add_teacher_logits(app)};
  commands.push_back(add_supervise(app));
  commands.push_back(add_sweep(app));
  commands.push_back(add_islands(app));
  commands.push_back(add_launch(app));
  for (Command& c : add_plan(app)) commands.push_back(std::move(c));
  for (Command& c : add_runs(app)) commands.push_back(std::move(c));
  for (Command& c : add_governance(app)) commands.push_back(std::move(c));
  for (Command& c : add_data(app)) commands.push_back(std::move(c));
  commands.push_back(add_completion(app));
  const auto named = [&](const Command& c) { return c.first_word() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), named))
    return say_error("",
                     fmt::format("there is no command {}{}\n`weft --help` lists them.", argv[1],
                                 nearest_advice(commands, argc, argv)),
                     kExitUsage);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    const int status = app.exit(e);
    std::cout.flush();
    return std::cout
               ? status
               : say_error("", "the output could not be written: is the disk full, or the reader gone?", kExitFailure);
  } catch (const CLI::ParseError& e) { return say_error("", usage_error(e, commands, argc, argv), kExitUsage); }
  for (const Command& command : commands) {
    if (command.app->parsed()) return run_command(command);
  }
  return kExitUsage;
}

}  // namespace weft
