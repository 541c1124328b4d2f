#include "weft/pipeline/pipeline_judge.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

class Judge {
 public:
  explicit Judge(const PipelineConfig& config) : c_(config) {}
  std::vector<std::string> run() {
    ranges();
    if (c_.has("language")) languages();
    return std::move(found_);
  }

 private:
  void ranges() {
    const LengthConfig& l = c_.length;
    const GopherQualityConfig& g = c_.gopher_quality;
    if (l.max_characters > 0) range("length", "characters", l.min_characters, l.max_characters);
    if (l.max_words > 0) range("length", "words", l.min_words, l.max_words);
    range("gopher_quality", "words", g.min_words, g.max_words);
    range("gopher_quality", "mean_word", g.min_mean_word, g.max_mean_word);
    if (c_.perplexity.max > 0 && c_.perplexity.min > c_.perplexity.max)
      found_.push_back(fmt::format("perplexity.min = {} is more than perplexity.max = {}: every document would go",
                                   c_.perplexity.min, c_.perplexity.max));
  }
  template <class T>
  void range(const std::string& section, const std::string& what, T least, T most) {
    if (!c_.has(section) || least <= most) return;
    found_.push_back(fmt::format("{0}.min_{1} = {2} is more than {0}.max_{1} = {3}: every document would go", section,
                                 what, least, most));
  }
  void languages() {
    if (c_.language.keep.empty())
      found_.emplace_back("language.keep is empty: every document would go; as in keep = [\"en\"]");
    for (const std::string& code : c_.language.keep) {
      const std::string why = why_no_language(code);
      if (!why.empty()) found_.push_back("language.keep: " + why);
    }
  }

  const PipelineConfig& c_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> contradictions(const PipelineConfig& config) { return Judge(config).run(); }

}  // namespace weft
