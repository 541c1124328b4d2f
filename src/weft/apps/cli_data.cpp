#include <memory>

#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"
#include "weft/apps/data_why.h"
#include "weft/base/error.h"

namespace weft {
namespace {

constexpr const char* kGroup = "data";

void tokenizer_options(CLI::App& app, TokenizerFileOptions& o) {
  app.add_option("--tokenizer", o.tokenizer,
                 "A model's folder, tokenizer.json, vocab.json, SentencePiece model, rank file, or byte")
      ->required()
      ->type_name("PATH");
  app.add_option("--pattern", o.pattern, "How text is split, where a rank file's name does not tell")
      ->check(CLI::IsMember({"r50k", "cl100k", "o200k", "llama3", "qwen2"}));
}

Command add_encode(CLI::App& data) {
  auto o = std::make_shared<EncodeOptions>();
  CLI::App* app = data.add_subcommand("encode", "JSON strings, one a line, to lists of token ids");
  tokenizer_options(*app, *o);
  app->add_flag("--parse-special", o->parse_special, "Special tokens written in the text are marks, not text");
  app->add_flag("--add-special", o->add_special, "Put around each text what the tokenizer's own rules say");
  app->add_option("--file", o->file,
                  "Encode this whole file instead, decompressed where it is compressed: prints the count, then the ids")
      ->type_name("FILE");
  app->add_option("--text-key", o->text_key,
                  "Encode not the bytes of --file, but this key of each row of it: of JSON and Parquet files")
      ->type_name("NAME");
  app->add_flag("--count", o->count, "Print counts only");
  add_number(*app, "--threads", o->threads, "Of --file; 0: all cores", 0, 4096);
  app->footer("Example:\n  echo '\"Hello, world\"' | weft data encode --tokenizer model/tokenizer.json");
  return {app, [o] { return run_data_encode(*o); }, kGroup};
}

Command add_decode(CLI::App& data) {
  auto o = std::make_shared<DecodeOptions>();
  CLI::App* app = data.add_subcommand("decode", "Lists of token ids, one a line, to JSON strings");
  tokenizer_options(*app, *o);
  app->add_flag("--skip-special", o->skip_special, "Leave out special tokens");
  app->footer("Example:\n  echo '[15496,995]' | weft data decode --tokenizer gpt2/vocab.json");
  return {app, [o] { return run_data_decode(*o); }, kGroup};
}

Command add_chat(CLI::App& data) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* app = data.add_subcommand("chat", "Conversations, one a line, to the text or ids that a model sees");
  tokenizer_options(*app, *o);
  app->add_option(
         "--template", o->template_file,
         "The chat template: a file, or chatml, llama-3, mistral, gemma, zephyr or alpaca; without it, that of the "
         "tokenizer's folder")
      ->type_name("FILE|NAME");
  app->add_option("--template-name", o->template_name, "Of several templates, the one of this name")->type_name("NAME");
  app->add_option("--messages-key", o->messages_key, "Key of the messages in lines that are objects; a.b: b in a")
      ->capture_default_str()
      ->type_name("NAME");
  app->add_option("--tools", o->tools, "A JSON list of tools, for conversations without their own")->type_name("FILE");
  app->add_option("--date", o->date, "What templates take for today")->type_name("YYYY-MM-DD");
  app->add_flag("--add-generation-prompt", o->add_generation_prompt,
                "End with what comes before the assistant's words");
  app->add_flag("--tokenize", o->tokenize, "Print {\"ids\": [...]} in place of the text");
  app->add_flag("--mask", o->mask, "Print {\"ids\": [...], \"mask\": [...]}: 1 where the assistant speaks");
  app->footer(
      "Example:\n  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | weft data chat --tokenizer model --mask");
  return {app, [o] { return run_data_chat(*o); }, kGroup};
}

Command add_train_tokenizer(CLI::App& data) {
  auto o = std::make_shared<TrainTokenizerOptions>();
  CLI::App* app = data.add_subcommand("train-tokenizer", "Learn a byte-level BPE tokenizer from text");
  app->add_option(
         "files", o->files,
         "Text, JSON, Parquet, CSV, WARC and HTML, also compressed (gz, zst, xz, bz2, lz4); folders: all in them")
      ->required()
      ->type_name("FILES");
  app->add_option("--out", o->out,
                  "The file to write, *.json, or a folder for its tokenizer.json; made where it is missing")
      ->required()
      ->type_name("PATH");
  app->add_flag("--again", o->again, "Replace the tokenizer that is there");
  add_number(*app, "--vocab-size", o->vocab_size, "Tokens, with the 256 bytes and the special ones", 256,
             int64_t{1} << 24);
  app->add_option("--special", o->specials,
                  "A special token; repeat it for more: they are the first ids, and documents are split at them")
      ->allow_extra_args(false)  // what follows is a file
      ->type_name("TOKEN");
  add_choice(*app, "--pattern", o->pattern, "How text is split into pieces",
             {"r50k", "cl100k", "o200k", "llama3", "qwen2"});
  app->add_option("--text-key", o->text_key, "Key of the text in JSONL, its column in CSV")->capture_default_str();
  add_number(*app, "--threads", o->threads, "0: all cores", 0, 4096);
  app->footer(
      "Example:\n  weft data train-tokenizer books.jsonl --vocab-size 32768 --special '<|endoftext|>' --out "
      "tokenizer.json");
  return {app, [o] { return run_data_train_tokenizer(*o); }, kGroup};
}

Command add_run(CLI::App& data) {
  auto o = std::make_shared<DataRunOptions>();
  CLI::App* app = data.add_subcommand("run", "Text to token files, as a pipeline says; the same command again goes on");
  app->add_option("pipeline", o->pipeline, "Pipeline file (docs/formats/pipeline.md)")
      ->required()
      ->type_name("PIPELINE");
  app->add_option("--stage", o->stage,
                  "Only this one (with --join: up to this one): read, filter, dedup, decontaminate or tokens")
      ->type_name("NAME");
  auto* again =
      app->add_flag("--again", o->again, "Throw a complete dataset of other inputs or parameters away for the new one");
  app->add_flag("--join", o->join,
                "Help the weft data run that is at work on this pipeline: any number may, on this host and on others "
                "that share the folder")
      ->excludes(again);
  app->footer(
      "Example:\n  weft data run examples/data/pipeline.toml\n\nCtrl-C stops after the shards in work.\n"
      "On other hosts that share its folder: the same command with --join.");
  return {app, [o] { return run_data_run(*o); }, kGroup};
}

Command add_dataset_command(CLI::App& data, const std::string& name, const std::string& help,
                            int (*run)(const DatasetOptions&)) {
  auto o = std::make_shared<DatasetOptions>();
  CLI::App* app = data.add_subcommand(name, help);
  app->add_option("folders", o->folders, "What weft data run wrote")
      ->required()
      ->expected(name == "diff" ? 2 : 1)
      ->type_name("DIR");
  return {app, [o, run] { return run(*o); }, kGroup};
}

Command add_stats(CLI::App& data) {
  auto o = std::make_shared<StatsOptions>();
  CLI::App* app = data.add_subcommand("stats", "What a dataset's stages did, and what they dropped");
  app->add_option("folder", o->folder, "What weft data run wrote")->required()->type_name("DIR");
  auto* samples = app->add_option("--samples", o->rule, "Show dropped documents: of all rules, or of this one")
                      ->expected(0, 1)
                      ->type_name("[RULE]");
  app->add_flag("--json", o->json, "One JSON object, for programs");
  app->footer("Example:\n  weft data stats dataset --samples gopher_quality");
  return {app,
          [o, samples] {
            o->samples = samples->count() > 0;
            return run_data_stats(*o);
          },
          kGroup};
}

Command add_why(CLI::App& data) {
  auto o = std::make_shared<WhyOptions>();
  CLI::App* app = data.add_subcommand("why", "What is behind a trained sample: files, rows, filters, duplicates, text");
  app->add_option("run", o->run, "Run folder (run.dir)")->required()->type_name("RUN");
  auto* step = app->add_option("--step", o->step, "The step, as metrics.jsonl counts them")
                   ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  auto of_batch = std::make_shared<WhyBatchOptions>();
  auto* batch = app->add_option("--batch", of_batch->batch,
                                "Or the batch, from 0, as the event of a loss spike has it: it may have no step")
                    ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
                    ->excludes(step);
  add_number(*app, "--sample", o->sample, "Which sample of the step's batch, from 0", 0, int64_t{1} << 31);
  app->add_flag("--json", o->json, "One JSON object, for programs");
  app->footer("Example:\n  weft data why runs/first --step 1000 --sample 3");
  return {app,
          [o, of_batch, step, batch] {
            if (step->count() > 0) return run_data_why(*o);
            if (batch->count() == 0) throw ConfigError("--step is required, or --batch");
            of_batch->run = o->run;
            of_batch->sample = o->sample;
            of_batch->json = o->json;
            return run_data_why(*of_batch);
          },
          kGroup};
}

Command add_train_ngram(CLI::App& data) {
  auto o = std::make_shared<TrainNgramOptions>();
  CLI::App* app = data.add_subcommand("train-ngram", "Learn a small model of bytes, for a pipeline's [perplexity]");
  app->add_option("files", o->files, "Text, JSONL, WARC, also compressed")->required()->type_name("FILES");
  app->add_option("--out", o->out, "The model to write")->required()->type_name("FILE");
  app->add_flag("--again", o->again, "Replace the model that is there");
  add_number(*app, "--order", o->order, "Bytes of the longest sequence", 1, 7);
  app->add_option("--text-key", o->text_key, "Key of the text in JSONL")->capture_default_str();
  app->footer("Example:\n  weft data train-ngram good.jsonl.gz --out good.ngram");
  return {app, [o] { return run_data_train_ngram(*o); }, kGroup};
}

}  // namespace

std::vector<Command> add_data(CLI::App& weft) {
  CLI::App* data = weft.add_subcommand(kGroup, "Text to tokens: pipelines, datasets, tokenizers, conversations");
  data->require_subcommand(1);
  return {
      add_encode(*data),
      add_decode(*data),
      add_chat(*data),
      add_train_tokenizer(*data),
      add_run(*data),
      add_dataset_command(*data, "audit", "Whether a dataset is what its manifest says", run_data_audit),
      add_stats(*data),
      add_dataset_command(*data, "diff", "How two datasets differ; status 1: they do; 2: cannot tell", run_data_diff),
      add_why(*data),
      add_train_ngram(*data)};
}

}  // namespace weft
