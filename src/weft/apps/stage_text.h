// How far `weft data run` is, and what a stage did, in words.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "weft/pipeline/stage.h"

namespace weft {

// "21.0 MB"
std::string megabytes(double bytes);
// "reason 12, other 3, +2 more": at most `most` of them, the largest counts first, and in at most `width` columns;
// empty where not one fits.
std::string most_frequent(const std::map<std::string, int64_t>& counts, size_t most, size_t width);

// "filter 25%: 14490 documents, 19.7 MB/s, ETA 0:38, kept 14255, dropped 235: length.min_words 120, +4 more", in at
// most `width` columns: what stands last is left out first, whole. `speed`: bytes of work in a second; 0: not known
// yet.
std::string format_stage_progress(const StageProgress::View& view, double speed, size_t width);

inline constexpr double kLongStage_s = 5;       // without a terminal, a stage gets its first line after this time
inline constexpr double kPlainInterval_s = 60;  // and then one line per interval

// Decides what is said of stages, and when. Times are seconds of a steady clock.
class StageTeller {
 public:
  // `live`: on a terminal, where each look is shown. Else there is a line when a stage has lasted kLongStage_s, and
  // then each kPlainInterval_s.
  explicit StageTeller(bool live) : live_(live) {}
  // The line to show now, in at most `width` columns; empty: none.
  std::string look(const StageProgress::View& view, double now_s, size_t width);

 private:
  bool live_;
  std::string stage_;  // that was seen last
  double since_s_ = 0, next_s_ = 0;
  int64_t before_ = 0;  // bytes of work at since_s_
};

// Why an input of a manifest could not be read to its end; empty: it could, or the dataset is of a weft that did not
// note it.
std::string failure_of(const nlohmann::json& input);

// What a complete stage did, by its manifest, in the dataset `folder`: lines.
std::string stage_text(const nlohmann::json& manifest, const std::filesystem::path& folder);

}  // namespace weft
