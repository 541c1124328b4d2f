#include <memory>

#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"

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
  app->add_option("--file", o->file, "Encode this whole file instead: prints the count, then the ids")
      ->type_name("FILE");
  app->add_flag("--count", o->count, "Print counts only");
  app->add_option("--threads", o->threads, "Of --file; 0: all cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
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

}  // namespace

std::vector<Command> add_data(CLI::App& weft) {
  CLI::App* data = weft.add_subcommand(kGroup, "Tokenize text");
  data->require_subcommand(1);
  return {add_encode(*data), add_decode(*data)};
}

}  // namespace weft
