#include "weft/tokenize/decoders.h"

#include <algorithm>
#include <utility>

#include "weft/base/ascii.h"
#include "weft/base/utf8.h"
#include "weft/tokenize/byte_alphabet.h"
#include "weft/tokenize/component.h"
#include "weft/tokenize/pre_tokenizers.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

using Tokens = std::vector<std::string>;

constexpr const char* kKnownDecoders =
    "ByteLevel, ByteFallback, Metaspace, WordPiece, BPEDecoder, Replace, Strip, Fuse, CTC, Sequence";

// What stands alone in tokens, as it is written.
std::string tidy(std::string text) {
  constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [what, by] : kRules) text = with_replaced(text, what, by);
  return text;
}

Tokens byte_level(const Tokens& tokens, const ByteAlphabet& alphabet) {
  std::string bytes;
  for (const auto& t : tokens) bytes += alphabet.to_bytes(t).value_or(t);
  return {bytes};
}

// "<0xE2>": its byte; else -1.
int byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Bytes in a row are a text, or as many broken characters.
Tokens byte_fallback(const Tokens& tokens) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (!bytes.empty() && utf8_error(bytes) == std::string_view::npos)
      out.push_back(bytes);
    else
      for (size_t i = 0; i < bytes.size(); ++i) append_character(out.emplace_back(), kReplacement);
    bytes.clear();
  };
  for (const auto& t : tokens) {
    if (const int byte = byte_of(t); byte >= 0) {
      bytes += char(byte);
      continue;
    }
    flush();
    out.push_back(t);
  }
  flush();
  return out;
}

Decoder metaspace(const Metaspace& m) {
  return [m](Tokens tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool drops = i == 0 && m.prefix != Metaspace::Prefix::kNever;
      tokens[i] = with_replaced(tokens[i], m.mark, drops ? "" : " ");
    }
    return tokens;
  };
}

Decoder word_piece(const JsonFields& f) {
  return [prefix = f.string("prefix", "##"), tidies = f.flag("cleanup", true)](Tokens tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& t = tokens[i];
      if (i > 0) t = t.starts_with(prefix) ? t.substr(prefix.size()) : " " + t;
      if (tidies) t = tidy(std::move(t));
    }
    return tokens;
  };
}

Decoder replacement(const Component& c) {
  const PatternText what = read_pattern(c);
  if (what.is_regex)
    throw FileError(
        fmt::format("{}: a decoder that replaces a Regex: weft does not know it; it knows a String", c.source));
  return [what = what.text, by = c.fields().string("content")](Tokens tokens) {
    for (auto& t : tokens) t = with_replaced(t, what, by);
    return tokens;
  };
}

Decoder strip(const JsonFields& f) {
  const std::string content = f.string("content");
  const int64_t start = f.integer("start", {0}), stop = f.integer("stop", {0});
  if (content.empty()) f.fail("content", "one character");
  return [=](Tokens tokens) {
    for (auto& t : tokens) {
      for (int64_t n = 0; n < start && t.starts_with(content); ++n) t.erase(0, content.size());
      for (int64_t n = 0; n < stop && t.ends_with(content); ++n) t.resize(t.size() - content.size());
    }
    return tokens;
  };
}

Decoder ctc(const JsonFields& f) {
  const std::string pad = f.string("pad_token", "<pad>"), space = f.string("word_delimiter_token", "|");
  const bool tidies = f.flag("cleanup", true);
  return [=](Tokens tokens) {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    Tokens out;
    for (auto& t : tokens) {
      std::string text = with_replaced(t, pad, "");
      if (tidies) text = with_replaced(tidy(std::move(text)), space, " ");
      if (!text.empty()) out.push_back(std::move(text));
    }
    return out;
  };
}

Decoder suffix(std::string mark) {
  return [mark](Tokens tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = with_replaced(tokens[i], mark, i + 1 == tokens.size() ? "" : " ");
    return tokens;
  };
}

Decoder one(const Component& c) {
  const std::string type = c.type();
  const JsonFields f = c.fields();
  if (type == "ByteLevel") return [alphabet = ByteAlphabet()](Tokens tokens) { return byte_level(tokens, alphabet); };
  if (type == "ByteFallback") return byte_fallback;
  if (type == "Metaspace") return metaspace(read_metaspace(c));
  if (type == "WordPiece") return word_piece(f);
  if (type == "BPEDecoder") return suffix(f.string("suffix", "</w>"));
  if (type == "Replace") return replacement(c);
  if (type == "Strip") return strip(f);
  if (type == "Fuse") return [](Tokens tokens) { return Tokens{fmt::format("{}", fmt::join(tokens, ""))}; };
  if (type == "CTC") return ctc(f);
  c.fail_unknown(kKnownDecoders);
}

}  // namespace

Decoders read_decoders(const nlohmann::json& decoder, const std::string& source) {
  Decoders all;
  bool bytes = false;
  for_each_component({decoder, source + ": decoder"}, "decoders", [&](const Component& c) {
    bytes = c.type() == "ByteLevel";
    all.steps.push_back(one(c));
  });
  all.only_bytes = bytes && all.steps.size() == 1;
  all.joined_by_spaces = all.steps.empty();
  return all;
}

}  // namespace weft
