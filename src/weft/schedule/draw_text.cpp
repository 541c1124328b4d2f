#include <algorithm>
#include <cmath>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/schedule/draw.h"

namespace weft {
namespace {

constexpr char kIdle = '.', kGoesOn = '-';
constexpr int64_t kMostColumns = 1 << 20;  // of a row before it is cut into lines

// "F0", of further chunks "f0".
std::string label(const Action& a) {
  const char letter = char(a.what);
  return fmt::format("{}{}", a.chunk == 0 ? letter : lower_ascii(letter), a.micro_batch);
}

std::string row_of(const std::vector<TimedAction>& actions, int64_t columns, double columns_per_time) {
  std::string row(size_t(columns), kIdle);
  for (const TimedAction& t : actions) {
    const auto begin = size_t(std::lround(t.start * columns_per_time));
    const size_t length = size_t(std::lround(t.end * columns_per_time)) - begin;
    std::string box = label(t.action).substr(0, length);
    box.resize(length, kGoesOn);
    row.replace(begin, length, box);
  }
  return row;
}

}  // namespace

int64_t num_micro_batches(const Timeline& timeline) {
  int64_t most = 0;
  for (const auto& rank : timeline.ranks)
    for (const TimedAction& t : rank) most = std::max(most, t.action.micro_batch + 1);
  return most;
}

double shortest_action(const Timeline& timeline) {
  double shortest = 0;
  for (const auto& rank : timeline.ranks) {
    for (const TimedAction& t : rank) {
      const double time = t.end - t.start;
      if (time > 0 && (shortest == 0 || time < shortest)) shortest = time;
    }
  }
  return shortest;
}

std::string headline(const Pipeline& pipeline, const Timeline& timeline) {
  const int64_t m = num_micro_batches(timeline);
  const auto counted = [](int64_t n, const char* one, const char* more) {
    return fmt::format("{} {}", n, n == 1 ? one : more);
  };
  return fmt::format("{}, {}{}, {}: {:.4g} long, bubble {:.1f} %", name_of(pipeline.kind),
                     counted(pipeline.num_stages, "stage", "stages"),
                     pipeline.num_chunks == 1 ? "" : fmt::format(" of {} chunks", pipeline.num_chunks),
                     counted(m, "micro-batch", "micro-batches"), timeline.makespan, 100 * timeline.bubble_fraction());
}

std::string draw_text(const Pipeline& pipeline, const Timeline& timeline, int columns) {
  WEFT_CHECK(columns >= 20, "{} columns", columns);
  const double shortest = shortest_action(timeline);
  const size_t label_columns = fmt::format("F{}", std::max<int64_t>(num_micro_batches(timeline) - 1, 0)).size();
  const double wanted = shortest > 0 ? double(label_columns) / shortest : 0;
  const double per_time = timeline.makespan > 0 ? std::min(wanted, double(kMostColumns) / timeline.makespan) : 0;
  const int64_t all = std::lround(timeline.makespan * per_time);
  std::vector<std::string> rows;
  for (const auto& rank : timeline.ranks) rows.push_back(row_of(rank, all, per_time));

  const std::string widest = fmt::format("rank {}  ", rows.size() - 1);
  const int64_t margin = int64_t(widest.size()), whole = int64_t(label_columns);
  const int64_t line = std::max<int64_t>(1, (columns - margin) / whole) * whole;
  std::string text = headline(pipeline, timeline) + "\n";
  for (int64_t begin = 0; begin < all; begin += line) {
    text += fmt::format("{:<{}}{:.4g}\n", "time", margin, double(begin) / per_time);
    for (size_t rank = 0; rank < rows.size(); ++rank)
      text += fmt::format("{:<{}}{}\n", fmt::format("rank {}", rank), margin,
                          rows[rank].substr(size_t(begin), size_t(line)));
  }
  return text + fmt::format("F forward, B backward, D dgrad, W wgrad, of a micro-batch{}; {} idle\n",
                            pipeline.num_chunks == 1 ? "" : "; small letters: further chunks", kIdle);
}

}  // namespace weft
