#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/chat_prompts.h"
#include "weft/apps/commands.h"
#include "weft/apps/dialogue.h"
#include "weft/apps/forward_ranks.h"
#include "weft/apps/generation_plan.h"
#include "weft/apps/report.h"
#include "weft/base/error.h"
#include "weft/base/memory_limits.h"
#include "weft/tokenize/tokenizer.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/trained_context.h"

namespace weft {
namespace {

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char *at = text.data(), *end = text.data() + text.size();
  if (text.empty()) return ids;
  while (true) {
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next < end && *next != ','))
      throw ConfigError(fmt::format("--prompt-ids {}: expected numbers with commas between them", text));
    ids.push_back(id);
    if (next == end) return ids;
    at = next + 1;
  }
}

// How many tokens of the prompt are the mark that a text begins with.
int64_t beginning_of(const Tokens& prompt, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return 0;
  const std::vector<int32_t> mark = tokenizer->beginning();
  const bool begins = mark.size() <= prompt.size() && std::equal(mark.begin(), mark.end(), prompt.begin());
  return begins ? int64_t(mark.size()) : 0;
}

const ForwardCommand kGenerate{
    .name = "generate",
    .keys = {"parallel.dp", "parallel.tp", "parallel.pp", "parallel.pipeline_layout", "parallel.cp",
             "parallel.cp_comm_type", "parallel.cp_a2a_size", "parallel.ep", "parallel.order", "run.ranks"}};

// Where ranks of dp share experts, on one host's cores: all go on with all texts, as ranks of cp do. Then each reads a
// part of every weight, and none waits for experts that another has no rows for.
Recipe::Parallel with_shared_texts(Recipe::Parallel p) {
  if (p.ep == 1 || p.dp == 1) return p;
  if (p.cp == 1)
    p.cp_comm_type = CpCommType::p2p;
  else if (p.cp_comm_type == CpCommType::a2a)
    p.cp_comm_type = CpCommType::a2a_p2p, p.cp_a2a_size = p.cp;
  p.cp *= p.dp;
  p.dp = 1;
  return p;
}

// One command's work, before there are ranks.
class Generation {
 public:
  Generation(const GenerateOptions& o, const Recipe& recipe, const RankProcess& process)
      : o_(o), recipe_(recipe), leads_(process.leads()), folder_(model_folder_of(o.model, teller())) {
    recipe_.parallel.sequence_parallel = false;  // a pass may be of one token
    config_ = read_hf_config(folder_);
    for (const std::string& warning : config_.warnings) teller()("note: " + warning);
    require_vocabulary_head(config_.spec, folder_.string());
    open_tokens();
    are_threads_ = process.here.empty();
    one_host_ = are_threads_ || int(process.here.size()) == mesh_sizes_of(recipe_).world();
    if (one_host_ && recipe_.run.backend == BackendKind::cpu && recipe_.parallel.pp == 1 && !is_dialogue()) {
      recipe_.parallel = with_shared_texts(recipe_.parallel);
    }
    check_layout();
    machine_ = o.plan ? machine_to_plan_for(recipe_) : machine_for(recipe_, int(process.here.size()));
    if (!o.plan)
      require_memory("to generate", recipe_, machine_, process, [&](const auto& ranks) { return need_of(ranks); });
    say_window();
  }

  void say_plan() const {
    const GenerationPlan plan = plan_of({});
    const size_t texts = is_dialogue() ? 1 : prompts_.size();
    std::cout << fmt::format("{} text{} of up to {} tokens\n{}", texts, texts == 1 ? "" : "s", most_tokens(),
                             plan.to_string());
    const auto left = memory_left_here();
    if (machine_.device.empty() && left && plan.total_bytes() > left->bytes)
      std::cout << fmt::format("more than there is here: {}\n", left->what);
  }

  // Returns the exit status.
  int run(const RankProcess& process) {
    std::atomic<bool> all = true;  // messages were answered
    process.run(mesh_sizes_of(recipe_), *machine_.mover, [&](const ProcessMesh& mesh) {
      if (!run_rank(mesh)) all = false;
    });
    return all ? kExitOk : kExitFailure;
  }

 private:
  std::function<void(const std::string&)> teller() const {
    return [leads = leads_](const std::string& line) {
      if (leads) std::cerr << line << "\n";
    };
  }

  void open_tokens() {
    const bool by_ids = (o_.ids && !o_.prompt_ids.empty()) || !o_.prompt_tokens.empty();
    const ModelTokenizer named =
        by_ids ? ModelTokenizer() : tokenizer_of_model(folder_, recipe_of_checkpoint(folder_), o_.tokenizer);
    if (!named.note.empty()) teller()("note: " + named.note);
    if (!by_ids) tokenizer_ = open_tokenizer(named.name, folder_, config_.spec.vocab_size);
    for (const std::string& ids : o_.prompt_ids) prompts_.push_back(parse_ids(ids));
    for (const int64_t tokens : parse_prompt_tokens(o_.prompt_tokens)) prompts_.emplace_back(size_t(tokens), 0);
    context_ = o_.context > 0 ? o_.context : context_of(folder_, config_);
    if (o_.chat) return open_chat(named.name);
    for (const std::string& text : o_.prompt) prompts_.push_back(prompt_ids(*tokenizer_, text));
    if (prompts_.empty()) prompts_.push_back(tokenizer_ ? prompt_ids(*tokenizer_, "") : Tokens());
    for (const Tokens& prompt : prompts_)
      if (prompt.empty()) throw ConfigError("the prompt is empty: give --prompt or --prompt-ids");
  }

  void open_chat(const std::string& tokenizer) {
    chat_.emplace(
        ChatPrompts::Spec{
            .model = folder_, .text_of = tokenizer, .chat_template = o_.chat_template, .system = o_.system},
        config_, *tokenizer_);
    if (chat_->end().tokens.empty() && chat_->end().text.empty())
      teller()(
          "note: nothing says where a reply ends, neither the chat template nor the model's files: --max-tokens does");
    for (const std::string& text : o_.prompt) {
      prompts_.push_back(chat_->ids_of({text}));
      if (int64_t(prompts_.back().size()) >= context_)
        throw ConfigError(
            fmt::format("--prompt {}: has {} tokens as the chat template has it, and {} {} at once; say it "
                        "in fewer words, or let the model see more by --context",
                        in_quotes(text), prompts_.back().size(), sees(), context_));
    }
  }
  bool is_dialogue() const { return o_.chat && o_.prompt.empty(); }
  int64_t max_tokens() const { return o_.max_tokens.value_or(o_.chat ? 1024 : 200); }
  std::string sees() const { return o_.context > 0 ? "--context lets the model see" : "the model was trained on"; }

  int64_t longest_prompt() const {
    const auto longest = std::max_element(prompts_.begin(), prompts_.end(),
                                          [](const Tokens& a, const Tokens& b) { return a.size() < b.size(); });
    return int64_t(longest->size());
  }
  int64_t most_tokens() const { return is_dialogue() ? context_ : std::min(context_, longest_prompt() + max_tokens()); }

  void say_window() const {
    if (o_.chat) return;
    const int64_t tokens = longest_prompt();
    if (tokens + max_tokens() <= context_ + 1) return;  // the last token is not fed
    teller()(
        fmt::format("note: {} {} tokens at once: from token {} on (the prompt has {}) it sees only the last {} to {}",
                    sees(), context_, context_ + 2, tokens, least_seen(context_), context_));
  }

  void check_layout() const {
    const int64_t dp = recipe_.parallel.dp, cp = recipe_.parallel.cp;
    if (is_dialogue() && dp > 1)
      throw ConfigError(fmt::format(
          "parallel.dp = {} cannot run: a conversation is one text, which ranks of dp do not share; the nearest that "
          "works: parallel.dp = 1",
          dp));
    if (!is_dialogue() && dp > int64_t(prompts_.size()))
      throw ConfigError(fmt::format(
          "parallel.dp = {} cannot run: {} prompt{} can be dealt out to at most as many ranks; the nearest that works: "
          "parallel.dp = {}",
          dp, prompts_.size(), prompts_.size() == 1 ? "" : "s", prompts_.size()));
    check_forward_layout(recipe_.parallel, config_.spec,
                         {.precision = precision_of(o_), .seq_length = 2 * cp, .size = 1});
  }

  // Ranks of one host's cores exchange a few kilobytes in some ten microseconds.
  std::optional<int64_t> shares_from(const Machine& machine) const {
    constexpr int64_t kBytes = 256 << 10;
    return machine.device.empty() && one_host_ ? std::optional(kBytes) : std::nullopt;
  }

  bool reaches_experts(const Machine& machine) const {
    return machine.device.empty() && are_threads_ && recipe_.parallel.ep > 1 && recipe_.parallel.dp == 1;
  }

  TextGenerator::Spec spec_of(const Machine& machine, const ProcessMesh& mesh) const {
    TextGenerator::Spec spec{.machine = machine,
                             .precision = precision_of(o_),
                             .texts = {},
                             .context = o_.chat ? 0 : context_,
                             .layout = recipe_.parallel,
                             .mesh = mesh,
                             .shares_from = shares_from(machine),
                             .reaches_experts = reaches_experts(machine),
                             .by_turns = is_dialogue()};
    const int64_t dp = mesh.sizes.dp, me = place_of(mesh.sizes, mesh.world->rank()).dp;
    spec.texts = texts_of({dp, me});
    for (int64_t rank = 0; rank < dp && mesh.sizes.ep > 1; ++rank)
      if (rank != me) spec.others.push_back(texts_of({dp, rank}));
    return spec;
  }

  std::vector<TextGenerator::Text> texts_of(RankOf dp) const {
    std::vector<TextGenerator::Text> texts;
    if (is_dialogue()) return {{.prompt = 1, .all = context_}};
    const Run here = prompts_of(int64_t(prompts_.size()), dp);
    for (int64_t i = here.first; i < here.end(); ++i) {
      const Tokens& prompt = prompts_[size_t(i)];
      const int64_t tokens = int64_t(prompt.size()), all = tokens + max_tokens();
      texts.push_back({.prompt = tokens,
                       .all = o_.chat ? std::min(all, context_) : all,
                       .keep_first = beginning_of(prompt, tokenizer_.get())});
    }
    return texts;
  }

  // The plan of these ranks; with none given, of all ranks.
  GenerationPlan plan_of(const std::vector<int>& ranks) const {
    const MeshSizes sizes = mesh_sizes_of(recipe_);
    GenerationPlan plan;
    for (int rank = 0; rank < sizes.world(); ++rank)
      if (ranks.empty() || std::count(ranks.begin(), ranks.end(), rank) > 0)
        plan.add(rank, TextGenerator::measure(config_.spec, spec_of(machine_, dry_mesh(sizes, rank))));
    return plan;
  }

  RanksNeed need_of(const std::vector<int>& ranks) const {
    const GenerationPlan plan = plan_of(ranks);
    return {.bytes = plan.total_bytes(),
            .of_it = fmt::format(" ({} of it {} pages of {} tokens of keys and values)",
                                 format_bytes(double(plan.cache_bytes())), plan.pages(), KvPages::kRows),
            .advice = "fewer --max-tokens, a smaller --context or fewer prompts take less\n" + plan.to_string()};
  }

  // False: a message of a conversation was left out.
  bool run_rank(const ProcessMesh& mesh) const {
    TextGenerator generator(folder_, spec_of(machine_.of_rank(mesh.world->rank()), mesh));
    if (!o_.chat) {
      continue_texts(generator);
      return true;
    }
    const ReplySpec replies{.prompts = *chat_,
                            .how = sampling(),
                            .max_tokens = max_tokens(),
                            .context = context_,
                            .sees = sees(),
                            .tells_rates = o_.rate,
                            .out = std::cout,
                            .notes = std::cerr};
    const bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    if (is_dialogue()) return Dialogue(generator, replies, {.in = std::cin, .shows_prompt = terminal}).run();
    reply_to_each(generator, replies, prompts_);
    return true;
  }
  Sampling sampling() const {
    return {.temperature = o_.temperature, .top_k = o_.top_k, .top_p = o_.top_p, .seed = uint64_t(o_.seed)};
  }

  void continue_texts(TextGenerator& generator) const {
    const bool speaks = generator.mesh().world->rank() == 0, streams = speaks && prompts_.size() == 1;
    const Sampling how = sampling();
    Printer now(*this, 0);
    if (streams) now.begin();
    GenerateRequest request{.prompts = prompts_, .how = how, .max_tokens = max_tokens()};
    const int32_t end = tokenizer_ ? tokenizer_->end_of_document() : -1;
    request.ends = [end](int64_t, int32_t token) { return token == end ? TextEnds::before_token : TextEnds::no; };
    if (streams) request.said = [&](int64_t, int32_t token) { now.say(token); };
    GenerateRequest::Times times;
    request.times = &times;
    const std::vector<Tokens> texts = generate_texts(generator, request);
    if (streams) now.end();
    if (speaks && o_.rate) say_rates(texts, times);
    if (streams) return;
    for (size_t i = 0; speaks && i < texts.size(); ++i) {
      Printer text(*this, i);
      text.begin();
      for (const int32_t token : texts[i]) text.say(token);
      text.end();
    }
  }

  // The rates of all texts together.
  void say_rates(const std::vector<Tokens>& texts, const GenerateRequest::Times& times) const {
    int64_t read = 0;
    for (const Tokens& prompt : prompts_) read += int64_t(prompt.size());
    std::cerr << rates_text(read, texts, times);
  }

  // A prompt and what comes behind it.
  class Printer {
   public:
    Printer(const Generation& g, size_t prompt) : g_(g), prompt_(prompt) {
      if (g.tokenizer_) decoder_.emplace(*g.tokenizer_);
    }
    void begin() {
      const std::string text = prompt_ < g_.o_.prompt.size() ? g_.o_.prompt[prompt_] : "";
      if (!g_.o_.ids) std::cout << text << std::flush;
      if (decoder_ && !text.empty()) decoder_->follow(g_.prompts_[prompt_]);
    }
    void say(int32_t token) {
      if (g_.o_.ids)
        std::cout << (any_ ? "," : "") << token << std::flush;
      else
        std::cout << decoder_->next(token) << std::flush;
      any_ = true;
    }
    void end() { std::cout << std::endl; }

   private:
    const Generation& g_;
    const size_t prompt_;
    std::optional<IncrementalDecoder> decoder_;
    bool any_ = false;
  };

  const GenerateOptions& o_;
  Recipe recipe_;
  const bool leads_;
  const std::filesystem::path folder_;
  HfConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatPrompts> chat_;
  std::vector<Tokens> prompts_;  // of a conversation none: they come line by line
  int64_t context_ = 0;
  bool one_host_ = true, are_threads_ = true;  // all ranks: of this host, of this process
  Machine machine_;
};

void check_chat(const GenerateOptions& o) {
  const auto refuse_without = [&](bool given, const char* option) {
    if (given && !o.chat) throw ConfigError(fmt::format("{} has no effect without --chat", option));
  };
  refuse_without(!o.system.empty(), "--system");
  refuse_without(!o.chat_template.empty(), "--template");
  if (!o.chat) return;
  if (!o.prompt_ids.empty() || !o.prompt_tokens.empty())
    throw ConfigError(
        fmt::format("--prompt-{} cannot be a message of --chat: give --prompt, or lines on standard input",
                    o.prompt_ids.empty() ? "tokens" : "ids"));
  if (o.ids) throw ConfigError("--ids cannot go with --chat, which prints the text of replies: leave one of them out");
}

}  // namespace

int run_generate(const GenerateOptions& o) {
  if (!o.prompt.empty() + !o.prompt_ids.empty() + !o.prompt_tokens.empty() > 1)
    throw ConfigError("of --prompt, --prompt-ids and --prompt-tokens two are given: use one");
  if (!o.prompt_tokens.empty() && !o.plan)
    throw ConfigError("--prompt-tokens has no effect without --plan: give --prompt or --prompt-ids");
  check_chat(o);
  const Recipe recipe = forward_recipe(kGenerate, o, o.settings);
  if (o.chat && o.prompt.empty() && recipe.run.ranks == RanksKind::mpi && !o.plan)
    throw ConfigError(
        "run.ranks = \"mpi\" cannot run: the launcher of processes passes no standard input on to them; the nearest "
        "that works: run.ranks = \"local\", or messages by --prompt");
  if (o.plan) {
    Generation(o, recipe, {}).say_plan();
    return kExitOk;
  }
  return run_forward_ranks(recipe, "generate",
                           [&](const RankProcess& process) { return Generation(o, recipe, process).run(process); });
}

}  // namespace weft
