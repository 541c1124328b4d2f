// SentencePiece models, by their own library.
#include <sentencepiece_processor.h>
#include <xxhash.h>

#include <algorithm>
#include <mutex>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/tokenize/added_tokens.h"
#include "weft/tokenize/bpe.h"
#include "weft/tokenize/piece_cache.h"
#include "weft/tokenize/sentencepiece_spec.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

// The ids of words seen before: lent to one call at a time.
struct Caches {
  PieceCache words;
  LongPieceCache long_words;
};

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const std::filesystem::path& file) : controls_({}) {
    const MappedFile mapped(file);
    load(mapped.text(), file);
    fingerprint_ = fmt::format("sentencepiece-{:016x}", XXH64(mapped.text().data(), mapped.text().size(), 0));
    std::vector<AddedToken> controls;
    for (int id = 0; id < model_.GetPieceSize(); ++id)
      if (model_.IsControl(id)) controls.push_back({.id = id, .content = model_.IdToPiece(id), .special = true});
    controls_ = AddedTokenFinder(std::move(controls));
    words_alone_ = are_words_alone(read_sentencepiece_spec(mapped.text()));
  }
  int64_t vocab_size() const override { return model_.GetPieceSize(); }
  int32_t end_of_document() const override { return model_.eos_id(); }
  std::vector<int32_t> beginning() const override {
    return model_.bos_id() >= 0 ? std::vector<int32_t>{model_.bos_id()} : std::vector<int32_t>{};
  }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const override {
    if (special == SpecialText::kText) return encode_text(text, ids);
    controls_.split(text, true,
                    {.text = [&](std::string_view part) { encode_text(part, ids); },
                     .token = [&](const AddedToken& t) { ids.push_back(t.id); }});
  }
  size_t cut_between(std::string_view, size_t, size_t) const override { return 0; }
  std::string decode(std::span<const int32_t> ids, Specials specials) const override {
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string part;
      const auto status = model_.Decode(run, &part);
      if (!status.ok()) throw Error(fmt::format("SentencePiece cannot decode: {}", status.ToString()));
      text += part;
      run.clear();
    };
    for (int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) continue;
      if (!model_.IsControl(id)) {
        run.push_back(id);
        continue;
      }
      flush();
      if (specials == Specials::kShown) text += model_.IdToPiece(id);
    }
    flush();
    return text;
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  void load(std::string_view bytes, const std::filesystem::path& file) {
    std::string why;
    try {
      const auto status = model_.LoadFromSerializedProto({bytes.data(), bytes.size()});
      if (!status.ok()) why = status.ToString();
    } catch (const std::exception& e) {  // of its trie, at pieces with NULs
      why = e.what();
    }
    if (!why.empty()) throw FileError(fmt::format("{}: no SentencePiece model: {}", file.string(), why));
  }
  // Whether a word with the space before it has the same ids by itself as within a text: merges of BPE, of which none
  // reaches over a space, and no rules about several characters.
  bool are_words_alone(const SentencePieceSpec& spec) const {
    constexpr int kBpe = 2;
    if (!spec.whole || spec.model_type != kBpe || spec.maps_characters || !spec.adds_dummy_prefix ||
        !spec.escapes_spaces || spec.spaces_are_suffixes || model_.IsUnknown(model_.PieceToId("\u2581")))
      return false;
    for (int id = 0; id < model_.GetPieceSize(); ++id) {
      std::string_view piece = model_.IdToPiece(id);
      while (piece.starts_with(kBlank)) piece.remove_prefix(kBlank.size());
      if (piece.find(kBlank) != std::string_view::npos || piece.find(' ') != std::string_view::npos) return false;
    }
    return true;
  }

  void encode_text(std::string_view text, std::vector<int32_t>& ids) const {
    if (!words_alone_) return encode_whole(text, ids);
    auto caches = borrow();
    while (!text.empty()) {
      const size_t end = end_of_word(text);
      encode_word(text.substr(0, end), ids, *caches);
      text.remove_prefix(std::min(end + 1, text.size()));  // the space comes back as the dummy prefix of the next
    }
    give_back(std::move(caches));
  }
  // At the first space between two characters of ASCII that are none.
  static size_t end_of_word(std::string_view text) {
    const auto is_visible = [](char c) { return c > ' ' && c < '\x7f'; };
    for (size_t at = text.find(' ', 1); at != std::string_view::npos; at = text.find(' ', at + 1))
      if (is_visible(text[at - 1]) && at + 1 < text.size() && is_visible(text[at + 1])) return at;
    return text.size();
  }
  void encode_word(std::string_view word, std::vector<int32_t>& ids, Caches& caches) const {
    const size_t begin = ids.size();
    const auto new_ids = [&] { return std::span<const int32_t>(ids.data() + begin, ids.size() - begin); };
    if (PieceCache::takes(word)) {
      const auto key = PieceCache::key_of(word);
      if (caches.words.find(key, ids)) return;
      encode_whole(word, ids);
      caches.words.keep(key, new_ids());
    } else if (LongPieceCache::takes(word)) {
      const uint64_t hash = XXH64(word.data(), word.size(), 0);
      if (caches.long_words.find(word, hash, ids)) return;
      encode_whole(word, ids);
      caches.long_words.keep(word, hash, new_ids());
    } else {
      encode_whole(word, ids);
    }
  }
  void encode_whole(std::string_view text, std::vector<int32_t>& ids) const {
    std::vector<int> pieces;
    const auto status = model_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw Error(fmt::format("SentencePiece cannot encode the text: {}", status.ToString()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  std::unique_ptr<Caches> borrow() const {
    std::lock_guard lock(mutex_);
    if (caches_.empty()) return std::make_unique<Caches>();
    auto caches = std::move(caches_.back());
    caches_.pop_back();
    return caches;
  }
  void give_back(std::unique_ptr<Caches> caches) const {
    std::lock_guard lock(mutex_);
    caches_.push_back(std::move(caches));
  }

  sentencepiece::SentencePieceProcessor model_;
  AddedTokenFinder controls_;
  std::string fingerprint_;
  bool words_alone_ = false;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Caches>> caches_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& file) {
  return std::make_unique<SentencePiece>(file);
}

}  // namespace weft
