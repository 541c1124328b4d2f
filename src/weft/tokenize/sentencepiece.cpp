// SentencePiece models: read, judged and decoded by their own library, encoded with the same ids by weft.
#include <sentencepiece_processor.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/tokenize/added_tokens.h"
#include "weft/tokenize/companions.h"
#include "weft/tokenize/sentencepiece_encoder.h"
#include "weft/tokenize/spares.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string_view model, const std::string& source, const Companions& companions) : controls_({}) {
    load(model, source);
    fingerprint_ = fmt::format("sentencepiece-{:016x}", XXH64(model.data(), model.size(), 0));
    std::vector<AddedToken> controls;
    for (int id = 0; id < model_.GetPieceSize(); ++id)
      if (model_.IsControl(id)) controls.push_back({.id = id, .content = model_.IdToPiece(id), .special = true});
    controls_ = AddedTokenFinder(std::move(controls));
    surround(companions, source);
    const SentencePieceSpec spec = read_sentencepiece_spec(model);
    if (SentencePieceEncoder::knows(spec)) encoder_.emplace(spec, source + ": no SentencePiece model");
  }
  int64_t vocab_size() const override { return model_.GetPieceSize(); }
  int32_t end_of_document() const override { return end_; }
  std::vector<int32_t> beginning() const override { return beginning_; }
  std::vector<int32_t> ending() const override { return ending_; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const override {
    encode(text, ids, special, 1);
  }
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special, int num_threads) const override {
    if (special == SpecialText::kText) return encode_text(text, ids, num_threads);
    controls_.split(text, true,
                    {.text = [&](std::string_view part) { encode_text(part, ids, num_threads); },
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
  void load(std::string_view bytes, const std::string& source) {
    std::string why;
    try {
      const auto status = model_.LoadFromSerializedProto({bytes.data(), bytes.size()});
      if (!status.ok()) why = status.ToString();
    } catch (const std::exception& e) {  // of its trie, at pieces with NULs
      why = e.what();
    }
    if (!why.empty()) throw FileError(fmt::format("{}: no SentencePiece model: {}", source, why));
  }
  // What the model itself says is in its fingerprint already.
  void surround(const Companions& c, const std::filesystem::path& file) {
    const auto id_of = [&](const std::string& name, int own) {
      const int id = name.empty() ? own : model_.PieceToId(name);
      return id < 0 || model_.IsUnknown(id) ? own : id;
    };
    const auto one = [&](bool wanted, int32_t id, const char* key) {
      if (wanted && id < 0)
        throw FileError(fmt::format("{}: {} is true, but the model {} has no such token",
                                    (file.parent_path() / "tokenizer_config.json").string(), key,
                                    file.filename().string()));
      return wanted ? std::vector<int32_t>{id} : std::vector<int32_t>{};
    };
    const int32_t begin = id_of(c.beginning, model_.bos_id());
    end_ = id_of(c.end, model_.eos_id());
    const bool begins = model_.bos_id() >= 0, ends = !begins && end_ >= 0;
    beginning_ = one(c.add_beginning.value_or(begins), begin, "add_bos_token");
    ending_ = one(c.add_end.value_or(ends), end_, "add_eos_token");
    const bool as_usual =
        begin == model_.bos_id() && end_ == model_.eos_id() && c.add_beginning.value_or(begins) == begins;
    if (!as_usual) fingerprint_ += fmt::format("-{}-{}", beginning_.empty() ? -1 : begin, end_);
  }

  void encode_text(std::string_view text, std::vector<int32_t>& ids, int num_threads) const {
    if (!encoder_) return encode_by_library(text, ids);
    const std::string made = encoder_->made_of(text);
    if (const size_t about = ids.size() + text.size() / 4; about > ids.capacity())
      ids.reserve(std::max(about, 2 * ids.capacity()));
    std::vector<size_t> ends;
    for (size_t end = 0; num_threads > 1 && end < made.size();) ends.push_back(end = encoder_->cut(made, end + kPart));
    if (ends.size() < 2) {
      const auto space = spaces_.borrow();
      return encoder_->encode(made, ids, *space);
    }
    std::vector<std::vector<int32_t>> parts(ends.size());
    parallel_for(int64_t(ends.size()), num_threads, 1, [&](int64_t begin, int64_t end) {
      const auto space = spaces_.borrow();
      for (auto i = size_t(begin); i < size_t(end); ++i) {
        const size_t from = i == 0 ? 0 : ends[i - 1];
        encoder_->encode(std::string_view(made).substr(from, ends[i] - from), parts[i], *space);
      }
    });
    join(parts, ids);
  }
  void join(const std::vector<std::vector<int32_t>>& parts, std::vector<int32_t>& ids) const {
    bool is_first = true;
    for (const auto& part : parts) {
      const bool one_less = !is_first && !part.empty() && encoder_->joins(ids.back(), part.front());
      ids.insert(ids.end(), part.begin() + one_less, part.end());
      is_first = is_first && part.empty();
    }
  }
  void encode_by_library(std::string_view text, std::vector<int32_t>& ids) const {
    std::vector<int> pieces;
    const auto status = model_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw Error(fmt::format("SentencePiece cannot encode the text: {}", status.ToString()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  static constexpr size_t kPart = 1 << 17;  // bytes of text that a thread takes at once

  sentencepiece::SentencePieceProcessor model_;
  AddedTokenFinder controls_;
  std::string fingerprint_;
  int32_t end_ = -1;
  std::vector<int32_t> beginning_, ending_;
  std::optional<SentencePieceEncoder> encoder_;  // none: the library does it
  Spares<SentencePieceEncoder::Space> spaces_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece(std::string_view model, const std::string& source,
                                              const Companions& companions) {
  return std::make_unique<SentencePiece>(model, source, companions);
}

}  // namespace weft
