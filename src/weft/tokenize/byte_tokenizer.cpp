#include <nlohmann/json.hpp>

#include "weft/tokenize/byte_alphabet.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

constexpr int32_t kEnd = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return kEnd + 1; }
  int32_t end_of_document() const override { return kEnd; }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText) const override {
    for (unsigned char c : text) ids.push_back(c);
  }
  size_t cut_between(std::string_view, size_t, size_t to) const override { return to; }
  std::string decode(std::span<const int32_t> ids, Specials) const override {
    std::string text;
    for (int32_t id : ids)
      if (id >= 0 && id < kEnd) text += char(id);
    return text;
  }
  std::string fingerprint() const override { return "byte-1"; }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::string byte_tokenizer_json() {
  const ByteAlphabet alphabet;
  nlohmann::json vocabulary;
  for (int b = 0; b < kEnd; ++b) vocabulary[alphabet.to_text(std::string(1, char(b)))] = b;
  const nlohmann::json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const nlohmann::json end{{"id", kEnd},          {"content", "<|endoftext|>"}, {"special", true},
                           {"normalized", false}, {"single_word", false},       {"lstrip", false},
                           {"rstrip", false}};
  const nlohmann::json model{{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}};
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", nlohmann::json::array({end})},
                        {"pre_tokenizer", bytes},
                        {"decoder", bytes},
                        {"model", model}}
             .dump(1) +
         "\n";
}

}  // namespace weft
