// Any text that is UTF-8 under every rule that needs no file, each kind of personal data and as a URL: nothing is read
// outside of it, and what is left is UTF-8.
#include <cstdint>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/utf8.h"
#include "weft/pipeline/pii.h"
#include "weft/pipeline/rule.h"
#include "weft/pipeline/url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  weft::normal_url(text);
  weft::normal_url("http://" + text);
  for (const weft::PiiKind& kind : weft::pii_kinds()) {
    const weft::PiiKind::Found found = kind.find(text, 0);
    if (found.begin != std::string::npos && (found.begin >= found.end || found.end > size)) std::abort();
  }
  if (weft::utf8_error(text) != std::string::npos) return 0;
  static const auto rules = [] {
    std::vector<std::unique_ptr<weft::Rule>> all;
    all.push_back(weft::make_gopher_quality_rule({.min_words = 0, .min_stop_words = 0}));
    all.push_back(weft::make_gopher_repetition_rule({}));
    all.push_back(weft::make_symbols_rule({}));
    all.push_back(weft::make_length_rule({}));
    all.push_back(weft::make_pii_rule({.mask = "<{}>"}));
    all.push_back(weft::make_c4_rule({.min_sentences = 0}));
    return all;
  }();
  weft::Document d;
  d.text = text;
  std::map<std::string, int64_t> changes;
  for (const auto& rule : rules) rule->judge(d, changes);
  if (weft::utf8_error(d.text) != std::string::npos) std::abort();
  return 0;
}
