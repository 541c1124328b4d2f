// The best way to write a text as tokens, each with a score of its own.               Viterbi 1967
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/tokenize/byte_trie.h"
#include "weft/tokenize/spares.h"

namespace weft {

// Length of a UTF-8 character, from its first byte.
inline size_t bytes_of_character(char first) {
  const auto c = uint8_t(first);
  return c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

// A search's memory, reused by the next one, except what a huge text took. For one thread.
template <class Score>
struct BestPathSpace {
  // The best way to a place: its score, and the last token on it. Nothing leads there if that has no length.
  struct Step {
    Score score;
    uint32_t length;
    int32_t id;
  };
  std::vector<Step> steps;
  std::vector<size_t> places;
};

// A search from the beginning of `text` to its end, character by character. Memory does not grow with the text, but
// with the longest part in which tokens overlap without an end and ways do not meet.
template <class Score, class ScoreOf, class Take>
class BestPath {
 public:
  // A character that is no token, nor the beginning of one that leads on, is `unknown`.
  struct Unknown {
    int32_t id;
    Score score;
  };
  // score_of(id, bytes) gives a double; take(begin, end, id) gets the tokens in order.
  BestPath(std::string_view text, const ByteTrie& tokens, Unknown unknown, const ScoreOf& score_of, const Take& take,
           BestPathSpace<Score>& space)
      : text_(text), tokens_(tokens), unknown_(unknown), score_of_(score_of), take_(take), space_(space) {}

  void run() {
    if (space_.steps.empty()) space_.steps.resize(256);
    space_.steps[0] = {Score{0}, 0, -1};
    for (size_t at = 0; at < text_.size();) {
      if (at == furthest_)
        take_to(at);  // no token crosses this place
      else if (at - origin_ >= patience_)
        settle(at);
      at = leave(at);
    }
    take_to(text_.size());
    give_up_above(kKept, space_.steps);
    give_up_above(kKept, space_.places);
  }

 private:
  using Step = typename BestPathSpace<Score>::Step;
  static constexpr size_t kPatience = 1 << 16, kKept = 1 << 18;

  Step& step(size_t place) { return space_.steps[place - origin_]; }

  // Offers all tokens that begin at a place; returns where its character ends.
  size_t leave(size_t at) {
    const size_t character = std::min(text_.size(), at + bytes_of_character(text_[at]));
    const Score here = step(at).score;
    bool alone = false;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < text_.size() && tokens_.step(node, text_[end]);) {
      ++end;
      const int32_t id = tokens_.value(node);
      if (id < 0) continue;
      offer(at, end, id, score_of_(id, end - at) + double(here));
      alone |= end == character;
    }
    if (!alone) offer(at, character, unknown_.id, double(Score(unknown_.score + here)));
    return character;
  }
  void offer(size_t begin, size_t end, int32_t id, double score) {
    while (furthest_ < end) {
      ++furthest_;
      if (furthest_ - origin_ >= space_.steps.size()) space_.steps.resize(2 * space_.steps.size());
      step(furthest_).length = 0;
    }
    Step& s = step(end);
    if (s.length == 0 || score > double(s.score)) s = {Score(score), uint32_t(end - begin), id};
  }

  void take_to(size_t place) {
    auto& ends = space_.places;
    ends.clear();
    for (size_t at = place; at > origin_; at -= step(at).length) ends.push_back(at);
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) take_(*end - step(*end).length, *end, step(*end).id);
    std::copy(space_.steps.begin() + std::ptrdiff_t(place - origin_),
              space_.steps.begin() + std::ptrdiff_t(furthest_ - origin_) + 1, space_.steps.begin());
    origin_ = place;
  }
  // Traced back from here, all paths meet at one place: tokens before it are decided.
  void settle(size_t at) {
    auto& ways = space_.places;
    ways.clear();
    for (size_t place = at; place <= furthest_; ++place)
      if (place == at || step(place).length > 0) ways.push_back(place);
    std::make_heap(ways.begin(), ways.end());
    size_t last = at;
    while (!ways.empty()) {
      last = ways.front();
      while (!ways.empty() && ways.front() == last) {
        std::pop_heap(ways.begin(), ways.end());
        ways.pop_back();
      }
      if (ways.empty()) break;
      ways.push_back(last - step(last).length);
      std::push_heap(ways.begin(), ways.end());
    }
    take_to(last);
    patience_ = std::max(kPatience, 2 * (at - last));
  }

  std::string_view text_;
  const ByteTrie& tokens_;
  Unknown unknown_;
  const ScoreOf& score_of_;
  const Take& take_;
  BestPathSpace<Score>& space_;
  size_t origin_ = 0;    // what lies before it was taken
  size_t furthest_ = 0;  // the last place that a token leads to
  size_t patience_ = kPatience;
};

}  // namespace weft
