#include <algorithm>
#include <charconv>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/base/error.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/text_generator.h"
#include "weft/train/trained_context.h"

namespace weft {
namespace {

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char *at = text.data(), *end = text.data() + text.size();
  while (at < end) {
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next < end && *next != ','))
      throw ConfigError(fmt::format("--prompt-ids {}: expected numbers and commas", text));
    ids.push_back(id);
    at = next + (next < end);
  }
  return ids;
}

void say_window(const GenerateOptions& o, int64_t prompt_tokens, int64_t context) {
  if (prompt_tokens + o.max_tokens <= context + 1) return;  // the last token is not fed
  std::cerr << fmt::format(
      "note: {} {} tokens at once: from token {} on (the prompt has {}) it sees only the last {} to {}\n",
      o.context > 0 ? "--context lets the model see" : "the model was trained on", context, context + 2, prompt_tokens,
      least_seen(context), context);
}

// How many tokens of the prompt are the mark that a text begins with.
int64_t beginning_of(const std::vector<int32_t>& prompt, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return 0;
  const std::vector<int32_t> mark = tokenizer->beginning();
  const bool begins = mark.size() <= prompt.size() && std::equal(mark.begin(), mark.end(), prompt.begin());
  return begins ? int64_t(mark.size()) : 0;
}

}  // namespace

int run_generate(const GenerateOptions& o) {
  if (!o.prompt.empty() && !o.prompt_ids.empty())
    throw ConfigError("--prompt and --prompt-ids are both given: use one");
  const auto folder = model_folder_of(o.model, [](const std::string& line) { std::cerr << line << "\n"; });
  const Machine machine = machine_for(o);
  const std::optional<Recipe> trained = recipe_of_checkpoint(folder);
  const bool by_ids = o.ids && !o.prompt_ids.empty();
  const ModelTokenizer named = by_ids ? ModelTokenizer() : tokenizer_of_model(folder, trained, o.tokenizer);
  if (!named.note.empty()) std::cerr << "note: " << named.note << "\n";
  const auto tokenizer = by_ids ? nullptr : open_tokenizer(named.name, folder, read_hf_config(folder).spec.vocab_size);
  std::vector<int32_t> prompt = parse_ids(o.prompt_ids);
  if (prompt.empty()) prompt = prompt_ids(*tokenizer, o.prompt);
  if (prompt.empty()) throw ConfigError("the prompt is empty: give --prompt or --prompt-ids");
  const int64_t prompt_tokens = int64_t(prompt.size());
  const int64_t context = o.context > 0 ? o.context : context_of(folder, read_hf_config(folder));
  say_window(o, prompt_tokens, context);
  TextGenerator generator(folder, {.machine = machine,
                                   .precision = precision_of(o),
                                   .max_tokens = prompt_tokens + o.max_tokens,
                                   .max_prompt = prompt_tokens,
                                   .context = context,
                                   .keep_first = beginning_of(prompt, tokenizer.get())});
  const Sampling how{.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p, .seed = uint64_t(o.seed)};
  if (!o.ids) std::cout << o.prompt << std::flush;
  auto logits = generator.feed(prompt);
  std::optional<IncrementalDecoder> decoder;
  if (tokenizer) decoder.emplace(*tokenizer);
  if (decoder && !o.prompt.empty()) decoder->follow(prompt);
  for (int64_t i = 0; i < o.max_tokens; ++i) {
    const int32_t token = sample_token(logits, how, uint64_t(i));
    if (tokenizer && token == tokenizer->end_of_document()) break;
    if (o.ids)
      std::cout << (i ? "," : "") << token << std::flush;
    else
      std::cout << decoder->next(token) << std::flush;
    if (i + 1 < o.max_tokens) logits = generator.feed({&token, 1});
  }
  std::cout << std::endl;
  return kExitOk;
}

}  // namespace weft
