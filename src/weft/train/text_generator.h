// Continues a sequence of tokens: forward passes with a cache of keys and values.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/models/hf_config.h"
#include "weft/step/batch_staging.h"
#include "weft/train/machine.h"

namespace weft {

// The folder of weights that a path means: a model's folder or checkpoint itself, or the newest checkpoint of a run
// that is whole. What is used of a checkpoint has been compared with its hashes then, on all cores; `say` gets lines
// for the user. Throws FileError where there is none, DamageError where a checkpoint that was named is damaged.
std::filesystem::path model_folder_of(const std::filesystem::path& path,
                                      const std::function<void(const std::string&)>& say);

struct Sampling {
  double temperature = 1;  // 0: the likeliest token
  int64_t top_k = 0;       // among the k likeliest; 0: all
  double top_p = 1;        // among the likeliest that together hold this probability
  uint64_t seed = 0;
};

// What such a window holds at least.
int64_t least_seen(int64_t context);

// The token chosen from logits [V]; `index` numbers the choices of a sequence.
int32_t sample_token(std::span<const double> logits, const Sampling& how, uint64_t index);

class TextGenerator {
 public:
  struct Spec {
    const Machine& machine;
    Precision precision;
    int64_t max_tokens;  // of prompt and continuation together
    int64_t max_prompt;  // tokens fed at once
    // Tokens that the model sees at once; 0: all. Beyond, it goes on in a window: it forgets the oldest tokens but the
    // first `keep_first` (the mark that a text begins with), and sees the last ones as a text of its own, three
    // quarters of `context` at first, then more with each token up to `context`.
    int64_t context = 0, keep_first = 0;
  };
  // Loads the weights of `folder`, which model_folder_of has checked. Throws ConfigError where its positions do not
  // reach.
  TextGenerator(const std::filesystem::path& folder, const Spec& spec);

  // Feeds tokens that follow all those fed so far, of which there may be any number where `max_tokens` is at least the
  // context; returns the logits [V] after the last. Blocks.
  std::span<const double> feed(std::span<const int32_t> ids);
  int64_t fed() const { return fed_; }
  const ModelSpec& model() const { return config_.spec; }

 private:
  struct Plan {
    int64_t params, constants, scratch, workspace;
  };
  Plan measure() const;
  Tensor pass(Backend& backend, const Transformer& model, std::vector<KvCache>& caches, Arena& scratch,
              std::span<const int32_t> ids, BatchStaging* staging) const;
  std::span<const int32_t> forget();

  const HfConfig config_;
  const Machine machine_;
  const Precision precision_;
  const int64_t context_, keep_first_;
  const int64_t max_tokens_, max_prompt_;  // in the cache; fed at once
  ProcessMesh mesh_;
  const Plan plan_;
  Arena values_, constants_, scratch_, workspace_;
  BatchStaging staging_;
  ParamStore params_;
  Transformer model_;
  std::unique_ptr<Backend> backend_;
  std::vector<KvCache> caches_;
  std::vector<int32_t> seen_;  // what the cache is of, where it can forget
  int64_t fed_ = 0;
  std::vector<double> logits_;
};

}  // namespace weft
