// Continues texts: forward passes with a cache of keys and values, on one rank of a layout.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/models/hf_config.h"
#include "weft/plan/step_data.h"
#include "weft/step/batch_staging.h"
#include "weft/step/cache_books.h"
#include "weft/train/forward_rank.h"
#include "weft/train/sampling.h"
#include "weft/train/text_feeder.h"

namespace weft {

// The weights that a path means: a model's folder, GGUF file or checkpoint itself, or the newest checkpoint of a run
// that is whole. What is used of a checkpoint has been compared with its hashes then, on all cores; `say` gets lines
// for the user. Throws FileError where there is none, DamageError where a checkpoint that was named is damaged.
std::filesystem::path model_folder_of(const std::filesystem::path& path,
                                      const std::function<void(const std::string&)>& say);

// What a window of `context` tokens holds at least.
int64_t least_seen(int64_t context);

class TextGenerator final : public TextFeeder {
 public:
  struct Text {
    int64_t prompt;  // tokens fed first, at once
    int64_t all;     // with those that follow
    // Where the model sees `context` tokens at once, the first so many are never forgotten: the mark that a text begins
    // with.
    int64_t keep_first = 0;
  };
  struct Spec {
    const Machine& machine;  // of this rank
    Precision precision;
    std::vector<Text> texts;  // at least one
    // Tokens that the model sees at once; 0: all. Beyond, a text goes on in a window: it forgets the oldest tokens but
    // the first `keep_first`, and sees the last ones as a text of its own, three quarters of `context` at first, then
    // more with each token up to `context`.
    int64_t context = 0;
    Recipe::Parallel layout = {};
    ProcessMesh mesh = single_mesh();            // of the layout's sizes; ranks of dp have texts of their own
    std::vector<std::vector<Text>> others = {};  // of each other rank of dp, where they share experts (ep)
    // Ranks of cp share the products of a text's next token that spare each of them so many bytes of weights; none:
    // never. For ranks that exchange columns in less time than they read so much.
    std::optional<int64_t> shares_from = {};
    // Ranks of ep are threads of one process and share all texts (dp = 1): each multiplies its tokens with the weights
    // of all experts where these lie, and waits for none.
    bool reaches_experts = false;
    // The tokens of the only text come at any time, in any number up to `all`, as those of a conversation do: then it
    // has no window, and `prompt` means nothing.
    bool by_turns = false;
    // Other texts take the places of these later, batch after batch, none longer than the text in its place: the tokens
    // of their prompts. What they need is planned, too.
    std::vector<std::vector<int64_t>> later = {};
    // The seed of random weights in place of the folder's, which may have none: for benchmarks.
    std::optional<uint64_t> random_weights = {};
  };
  // What this rank takes, in bytes. Throws ConfigError where the model's positions do not reach.
  struct Needs {
    MemoryPlan plan;                     // `evaluation`: the temporaries of a pass
    int64_t pages = 0, cache_bytes = 0;  // of all layers here
    int64_t tokens_at_once = 0;          // that pass together where texts begin, at most
    int64_t total() const { return plan.total_bytes() + cache_bytes; }
  };
  static Needs measure(const ModelSpec& model, const Spec& spec);  // `mesh` may be a dry one
  // This rank's passes, dry: the first text alone as it begins, and then a token of each text as it ends.
  struct Passes {
    PassData begin, token;
  };
  static Passes passes(const ModelSpec& model, const Spec& spec);
  // Loads the weights of `folder`, which model_folder_of has checked. Throws ConfigError, FileError.
  TextGenerator(const std::filesystem::path& folder, const Spec& spec);

  // There may be any number of tokens where `all` is at least the context; of a text that begins, at most its `prompt`.
  std::span<const double> feed(std::span<const More> more) override;
  std::span<const double> feed(std::span<const int32_t> ids) { return feed(std::vector<More>{{0, ids}}); }
  std::span<const int32_t> unfed(int64_t text, std::span<const int32_t> ids) override;
  void end(int64_t text) override;
  int64_t most_tokens(int64_t text) const override { return spec_.texts[size_t(text)].all; }
  bool on_any_rank(bool here) override;
  int64_t fed(int64_t text = 0) const { return texts_[size_t(text)].fed; }
  bool has_head() const override { return step_.has_head(); }
  const ModelSpec& model() const override { return config_.spec; }
  const Needs& needs() const { return needs_; }
  int64_t temporaries_taken() const { return scratch_.peak(); }  // bytes of needs().plan.evaluation, at most
  const ProcessMesh& mesh() const override { return rank_.mesh; }

 private:
  struct State {
    std::vector<int32_t> seen;  // what the caches are of, and then those that are to be fed
    int64_t cached = 0;         // of them
    int64_t begins_with = 0;    // of them: these pass together or in portions, those that follow one by one
    int64_t fed = 0;
    bool began = false;  // once at least
  };
  void forget_oldest(int64_t text);
  void feed_filler();
  void feed_some(const std::vector<int64_t>& waiting);
  void feed_portion();
  void begin(const std::vector<int64_t>& texts);
  void begin_portion(const std::vector<int64_t>& texts);
  void step(const std::vector<int64_t>& texts);
  Tensor pass_of(const DecodingRows& rows);
  void keep_logits(const std::vector<int64_t>& texts, const Tensor& logits);

  const HfConfig config_;
  const Spec spec_;
  const Machine machine_;
  const StepSpec step_;
  const Needs needs_;
  ForwardRank rank_;
  Arena cache_memory_, scratch_;
  BatchStaging staging_;
  std::vector<KvCache> caches_;
  CacheBooks books_;
  std::vector<State> texts_;
  std::vector<std::vector<double>> last_;  // [text] logits
  std::vector<double> logits_;
};

}  // namespace weft
