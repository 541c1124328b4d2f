// SentencePiece models, by their own library.
#include <sentencepiece_processor.h>
#include <xxhash.h>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/tokenize/added_tokens.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

class SentencePiece final : public Tokenizer {
 public:
  explicit SentencePiece(const std::filesystem::path& file) : controls_({}) {
    const MappedFile mapped(file);
    const auto status = model_.LoadFromSerializedProto({mapped.text().data(), mapped.text().size()});
    if (!status.ok()) throw FileError(fmt::format("{}: no SentencePiece model: {}", file.string(), status.ToString()));
    fingerprint_ = fmt::format("sentencepiece-{:016x}", XXH64(mapped.text().data(), mapped.text().size(), 0));
    std::vector<AddedToken> controls;
    for (int id = 0; id < model_.GetPieceSize(); ++id)
      if (model_.IsControl(id)) controls.push_back({.id = id, .content = model_.IdToPiece(id), .special = true});
    controls_ = AddedTokenFinder(std::move(controls));
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
  void encode_text(std::string_view text, std::vector<int32_t>& ids) const {
    std::vector<int> pieces;
    const auto status = model_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) throw Error(fmt::format("SentencePiece cannot encode the text: {}", status.ToString()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  sentencepiece::SentencePieceProcessor model_;
  AddedTokenFinder controls_;
  std::string fingerprint_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& file) {
  return std::make_unique<SentencePiece>(file);
}

}  // namespace weft
