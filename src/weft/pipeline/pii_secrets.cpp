// Keys by which a program or a person is let in: those of providers that begin with a name of their own, JSON Web
// Tokens, and blocks of private keys.
#include "weft/pipeline/pii_finders.h"

namespace weft::pii {
namespace {

bool is_alnum(char c) { return is_letter(c) || is_digit(c); }
bool is_url_base64(char c) { return is_alnum(c) || c == '-' || c == '_'; }
bool is_lower_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }
bool is_databricks(char c) { return is_lower_hex(c) || c == '-'; }
bool is_upper_alnum(char c) { return is_upper(c) || is_digit(c); }
bool is_slack(char c) { return is_alnum(c) || c == '-'; }
bool is_dotted(char c) { return is_url_base64(c) || c == '.'; }

// What follows a name: so many of such characters, and no further one.
struct Key {
  std::string_view name;
  bool (*is_part)(char);
  size_t fewest, most;
};
constexpr Key kKeys[] = {
    {"AKIA", is_upper_alnum, 16, 16},                  // Amazon
    {"ASIA", is_upper_alnum, 16, 16},                  //
    {"github_pat_", is_url_base64, 60, 90},            // GitHub
    {"ghp_", is_alnum, 36, 36},                        //
    {"gho_", is_alnum, 36, 36},                        //
    {"ghu_", is_alnum, 36, 36},                        //
    {"ghs_", is_alnum, 36, 36},                        //
    {"ghr_", is_alnum, 36, 76},                        //
    {"glpat-", is_url_base64, 20, 50},                 // GitLab
    {"sk-proj-", is_url_base64, 20, 200},              // OpenAI
    {"sk-svcacct-", is_url_base64, 20, 200},           //
    {"sk-admin-", is_url_base64, 20, 200},             //
    {"sk-ant-", is_url_base64, 20, 200},               // Anthropic
    {"sk-or-v1-", is_lower_hex, 64, 64},               // OpenRouter
    {"sk-", is_alnum, 32, 64},                         // OpenAI, DeepSeek and others
    {"xoxb-", is_slack, 20, 120},                      // Slack
    {"xoxp-", is_slack, 20, 120},                      //
    {"xoxa-", is_slack, 20, 120},                      //
    {"xoxr-", is_slack, 20, 120},                      //
    {"xoxs-", is_slack, 20, 120},                      //
    {"xapp-", is_slack, 20, 150},                      //
    {"AIza", is_url_base64, 35, 35},                   // Google
    {"GOCSPX-", is_url_base64, 28, 28},                //
    {"ya29.", is_url_base64, 20, 250},                 //
    {"sk_live_", is_alnum, 16, 120},                   // Stripe
    {"rk_live_", is_alnum, 16, 120},                   //
    {"sk_test_", is_alnum, 16, 120},                   //
    {"rk_test_", is_alnum, 16, 120},                   //
    {"whsec_", is_alnum, 24, 80},                      //
    {"SG.", is_dotted, 60, 72},                        // SendGrid
    {"npm_", is_alnum, 36, 36},                        // npm
    {"pypi-AgEIcHlwaS5vcmc", is_url_base64, 50, 250},  // PyPI
    {"hf_", is_alnum, 30, 40},                         // Hugging Face
    {"dop_v1_", is_lower_hex, 64, 64},                 // DigitalOcean
    {"shpat_", is_hex, 32, 32},                        // Shopify
    {"sq0atp-", is_url_base64, 22, 22},                // Square
    {"dapi", is_databricks, 32, 34},                   // Databricks
    {"AccountKey=", [](char c) { return is_alnum(c) || c == '+' || c == '/' || c == '='; }, 80, 90},  // Azure
};

// Not a word, nor what stands for a key in instructions: "xxxxxxxxxxxx", "your_key_here".
bool is_random(std::string_view part) {
  size_t digits = 0, letters = 0, run = 1, longest = 1;
  for (size_t i = 0; i < part.size(); ++i) {
    digits += is_digit(part[i]);
    letters += is_letter(part[i]);
    run = i > 0 && part[i] == part[i - 1] ? run + 1 : 1;
    longest = std::max(longest, run);
  }
  return digits > 0 && letters > 0 && longest < 6;
}

size_t end_of_run(std::string_view text, size_t at, size_t most, bool (*is_part)(char)) {
  const size_t stop = std::min(text.size(), at + most);
  while (at < stop && is_part(text[at])) ++at;
  return at;
}

size_t key_end(std::string_view text, size_t at) {
  for (const Key& key : kKeys) {
    if (text[at] != key.name[0] || !text.substr(at).starts_with(key.name)) continue;
    const size_t begin = at + key.name.size();
    size_t end = end_of_run(text, begin, key.most + 1, key.is_part);
    while (end > begin && text[end - 1] == '.') --end;
    if (end - begin < key.fewest || end - begin > key.most || is_before_word(text, end)) continue;
    if (is_random(text.substr(begin, end - begin))) return end;
  }
  return kNone;
}

// Header, claims, signature, in base64; a header begins with {".                         RFC 7519
size_t web_token_end(std::string_view text, size_t at) {
  constexpr size_t kFewest = 10, kMost = 4096;
  if (!text.substr(at).starts_with("eyJ")) return kNone;
  size_t end = at;
  for (int part = 0; part < 3; ++part) {
    if (part > 0 && at_or_nul(text, end++) != '.') return kNone;
    const size_t begin = end;
    end = end_of_run(text, begin, kMost, is_url_base64);
    if (end - begin < kFewest) return kNone;
    if (part == 1 && !text.substr(begin).starts_with("ey")) return kNone;
  }
  return end;
}

}  // namespace

Found find_api_key(std::string_view text, size_t from) {
  constexpr std::string_view kFirst = "AgsxGyrwSnphdqe";
  for (size_t at = from; (at = text.find_first_of(kFirst, at)) != kNone; ++at) {
    const char before = before_or_nul(text, at);
    if (is_word(before) || before == '-') continue;
    size_t end = key_end(text, at);
    if (end == kNone) end = web_token_end(text, at);
    if (end != kNone) return {at, end};
  }
  return {};
}

// From BEGIN to END; without an END, the lines of base64 that follow.                     RFC 7468
Found find_private_key(std::string_view text, size_t from) {
  constexpr std::string_view kBegin = "-----BEGIN ", kEnd = "-----END ", kDashes = "-----";
  constexpr size_t kLongestLabel = 60, kMost = 16 << 10;
  for (size_t at = text.find(kBegin, from); at != kNone; at = text.find(kBegin, at + 1)) {
    const std::string_view label = text.substr(at + kBegin.size(), kLongestLabel);
    const size_t dashes = label.find(kDashes);
    if (dashes == kNone || label.substr(0, dashes).find("PRIVATE KEY") == kNone) continue;
    const size_t body = at + kBegin.size() + dashes + kDashes.size();
    const std::string_view rest = text.substr(body, kMost);
    if (const size_t end = rest.find(kEnd); end != kNone) {
      const size_t last = rest.find(kDashes, end + kEnd.size());
      if (last != kNone) return {at, body + last + kDashes.size()};
    }
    const auto is_body = [](char c) { return is_alnum(c) || std::string_view("+/=\r\n\\").find(c) != kNone; };
    size_t end = body;
    while (end < text.size() && end - body < kMost && is_body(text[end])) ++end;
    return {at, end};
  }
  return {};
}

}  // namespace weft::pii
