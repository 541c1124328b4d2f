// The rules of MassiveText.                                  Rae et al. 2021, "Scaling Language Models: ... Gopher", A1
#include <algorithm>
#include <array>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/pipeline/rule.h"
#include "weft/pipeline/words.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 8> kStopWords = {"the", "be", "to", "of", "and", "that", "have", "with"};
constexpr std::string_view kEllipsis = "\u2026", kBullet = "\u2022";

double share(int64_t part, int64_t whole) { return whole == 0 ? 0 : double(part) / double(whole); }

int64_t count_of(std::string_view text, std::string_view what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

bool has_letter(std::string_view word, const CharacterTable& table) {
  while (!word.empty()) {
    const Character c = first_character(word);
    if (table.of(c.code) & CharacterTable::kLetter) return true;
    word.remove_prefix(c.bytes);
  }
  return false;
}

// Which of the stop words a word is, without regard to case: one bit, or none.
unsigned stop_word_bit(std::string_view word) {
  if (word.size() > 4) return 0;
  const auto found = std::find(kStopWords.begin(), kStopWords.end(), lower_ascii(word));
  return found == kStopWords.end() ? 0 : 1u << (found - kStopWords.begin());
}

class Quality final : public Rule {
 public:
  explicit Quality(const GopherQualityConfig& config) : c_(config), table_(make_character_table("[gopher_quality]")) {}

  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>&) const override {
    const auto words = split_words(d.text);
    const auto n = int64_t(words.size());
    if (n < c_.min_words) return drop("min_words", n);
    if (n > c_.max_words) return drop("max_words", n);
    int64_t characters = 0, alphabetic = 0;
    unsigned stop_words = 0;
    for (std::string_view word : words) {
      characters += count_characters(word);
      alphabetic += has_letter(word, *table_);
      stop_words |= stop_word_bit(word);
    }
    const double mean = share(characters, n);
    if (mean < c_.min_mean_word) return drop("min_mean_word", mean);
    if (mean > c_.max_mean_word) return drop("max_mean_word", mean);
    const int64_t ellipses = count_of(d.text, "...") + count_of(d.text, kEllipsis);
    const double symbols = std::max(share(count_of(d.text, "#"), n), share(ellipses, n));
    if (symbols > c_.max_symbol_ratio) return drop("max_symbol_ratio", symbols);
    if (auto bad = judge_lines(d.text)) return bad;
    if (share(alphabetic, n) < c_.min_alphabetic_words) return drop("min_alphabetic_words", share(alphabetic, n));
    const int found = __builtin_popcount(stop_words);
    if (found < c_.min_stop_words) return drop("min_stop_words", found);
    return {};
  }

 private:
  template <class T>
  static Drop drop(const char* part, T value) {
    return {fmt::format("gopher_quality.{}", part), fmt::format("{:.4g}", double(value))};
  }
  std::optional<Drop> judge_lines(std::string_view text) const {
    const auto lines = split_lines(text);
    int64_t bullets = 0, ellipses = 0;
    for (std::string_view line : lines) {
      bullets += line.starts_with(kBullet) || line.starts_with('-');
      ellipses += line.ends_with("...") || line.ends_with(kEllipsis);
    }
    const auto n = int64_t(lines.size());
    if (share(bullets, n) > c_.max_bullet_lines) return drop("max_bullet_lines", share(bullets, n));
    if (share(ellipses, n) > c_.max_ellipsis_lines) return drop("max_ellipsis_lines", share(ellipses, n));
    return {};
  }

  GopherQualityConfig c_;
  std::shared_ptr<const CharacterTable> table_;
};

// Counts of hashes, without an allocation for each.
class HashCounts {
 public:
  explicit HashCounts(size_t most) {
    size_t size = 16;
    while (size < 2 * most) size *= 2;
    entries_.resize(size);
  }
  // How often it was there, with this time.
  int64_t add(uint64_t hash) {
    const size_t mask = entries_.size() - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      Entry& e = entries_[i];
      if (e.count == 0) e.hash = hash;
      if (e.hash == hash) return ++e.count;
    }
  }
  int64_t get(uint64_t hash) const {
    const size_t mask = entries_.size() - 1;
    size_t i = hash & mask;
    while (entries_[i].count > 0 && entries_[i].hash != hash) i = (i + 1) & mask;
    return entries_[i].count;
  }

 private:
  struct Entry {
    uint64_t hash = 0;
    int64_t count = 0;
  };
  std::vector<Entry> entries_;
};

class Repetition final : public Rule {
 public:
  explicit Repetition(const GopherRepetitionConfig& config) : c_(config) {}

  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>&) const override {
    const int64_t characters = count_characters(d.text);
    const Repeated lines = repeated(split_lines(d.text)), paragraphs = repeated(split_paragraphs(d.text));
    if (auto bad = above("lines", share(lines.parts, lines.all), c_.lines)) return bad;
    if (auto bad = above("paragraphs", share(paragraphs.parts, paragraphs.all), c_.paragraphs)) return bad;
    if (auto bad = above("line_characters", share(lines.characters, characters), c_.line_characters)) return bad;
    if (auto bad = above("paragraph_characters", share(paragraphs.characters, characters), c_.paragraph_characters))
      return bad;
    return judge_ngrams(d.text, characters);
  }

 private:
  struct Repeated {
    int64_t parts = 0, all = 0, characters = 0;
  };
  static Repeated repeated(const std::vector<std::string_view>& parts) {
    Repeated r{.all = int64_t(parts.size())};
    HashCounts seen(parts.size());
    for (std::string_view part : parts) {
      if (seen.add(hash64(part)) == 1) continue;
      ++r.parts;
      r.characters += count_characters(part);
    }
    return r;
  }

  static std::optional<Drop> above(const std::string& part, double value, double most) {
    if (value <= most) return {};
    return Drop{"gopher_repetition." + part, fmt::format("{:.3f}", value)};
  }

  // Words by hash and length; a sequence of n is a hash that grows with n.
  struct Words {
    std::vector<uint64_t> hashes, ngrams;
    std::vector<int64_t> ends;  // characters of all words up to this one
    int64_t length(size_t from, size_t n) const { return ends[from + n - 1] - (from == 0 ? 0 : ends[from - 1]); }
    void grow(size_t n) {  // from sequences of n - 1
      for (size_t i = 0; i + n <= hashes.size(); ++i) {
        ngrams[i] = (ngrams[i] ^ hashes[i + n - 1]) * 0x9e3779b97f4a7c15u;
        ngrams[i] ^= ngrams[i] >> 32;
      }
    }
  };
  static Words words_of(std::string_view text) {
    Words w;
    int64_t end = 0;
    for (std::string_view word : split_words(text)) {
      w.hashes.push_back(hash64(word));
      w.ends.push_back(end += count_characters(word));
    }
    w.ngrams.assign(w.hashes.size(), 0);
    return w;
  }

  std::optional<Drop> judge_ngrams(std::string_view text, int64_t characters) const {
    Words w = words_of(text);
    const size_t top_end = 2 + c_.top_ngrams.size(), last = std::max<size_t>(top_end, 5 + c_.repeated_ngrams.size());
    w.grow(1);
    for (size_t n = 2; n < last && n <= w.hashes.size(); ++n) {
      w.grow(n);
      if (n < top_end) {
        const double top = share(top_characters(w, n), characters);
        if (auto bad = above(fmt::format("top_{}grams", n), top, c_.top_ngrams[n - 2])) return bad;
      }
      if (n >= 5 && n - 5 < c_.repeated_ngrams.size()) {
        const double repeated = share(repeated_characters(w, n), characters);
        if (auto bad = above(fmt::format("repeated_{}grams", n), repeated, c_.repeated_ngrams[n - 5])) return bad;
      }
    }
    return {};
  }
  // Those in the most frequent sequence, spaces within it counted; of equally frequent ones, in the first.
  static int64_t top_characters(const Words& w, size_t n) {
    HashCounts counts(w.hashes.size());
    const size_t all = w.hashes.size() - n + 1;
    for (size_t i = 0; i < all; ++i) counts.add(w.ngrams[i]);
    int64_t most = 1;  // what stands there once is not repeated
    size_t where = 0;
    for (size_t i = 0; i < all; ++i) {
      const int64_t count = counts.get(w.ngrams[i]);
      if (count > most) most = count, where = i;
    }
    return most == 1 ? 0 : most * (w.length(where, n) + int64_t(n) - 1);
  }
  // Those in sequences that stood before; sequences that are counted do not overlap.
  static int64_t repeated_characters(const Words& w, size_t n) {
    HashCounts seen(w.hashes.size());
    int64_t characters = 0;
    for (size_t i = 0; i + n <= w.hashes.size();) {
      if (seen.add(w.ngrams[i]) > 1) {
        characters += w.length(i, n);
        i += n;
      } else {
        ++i;
      }
    }
    return characters;
  }

  GopherRepetitionConfig c_;
};

}  // namespace

std::unique_ptr<Rule> make_gopher_quality_rule(const GopherQualityConfig& config) {
  return std::make_unique<Quality>(config);
}
std::unique_ptr<Rule> make_gopher_repetition_rule(const GopherRepetitionConfig& config) {
  return std::make_unique<Repetition>(config);
}

}  // namespace weft
