// The kinds of personal data, and the rule that masks them: in texts, and in all that a conversation says.
#include <fmt/format.h>

#include <algorithm>

#include "weft/pipeline/pii_finders.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

constexpr PiiKind kKinds[] = {
    {"private_keys", "PRIVATE_KEY", pii::find_private_key},
    {"api_keys", "API_KEY", pii::find_api_key},
    {"emails", "EMAIL_ADDRESS", pii::find_email},
    {"ipv6", "IP_ADDRESS", pii::find_ipv6},
    {"ips", "IP_ADDRESS", pii::find_ipv4},
    {"ibans", "IBAN", pii::find_iban},
    {"cards", "CARD_NUMBER", pii::find_card},
    {"international_phones", "PHONE_NUMBER", pii::find_international_phone},
    {"phones", "PHONE_NUMBER", pii::find_phone},
    {"ssns", "SOCIAL_SECURITY_NUMBER", pii::find_ssn},
};

using Json = nlohmann::ordered_json;

class Pii final : public Rule {
 public:
  explicit Pii(const PiiConfig& c) : mask_(c.mask) {
    const std::pair<std::string_view, bool> wanted[] = {
        {"emails", c.emails},     {"ipv6", c.ipv6},
        {"ips", c.ips},           {"ibans", c.ibans},
        {"cards", c.cards},       {"international_phones", c.international_phones},
        {"phones", c.phones},     {"ssns", c.ssns},
        {"api_keys", c.api_keys}, {"private_keys", c.private_keys}};
    for (const PiiKind& kind : pii_kinds())
      for (const auto& [key, is_wanted] : wanted)
        if (is_wanted && key == kind.key) kinds_.push_back(&kind);
  }

  std::optional<Drop> judge(Document& d, std::map<std::string, int64_t>& changes) const override {
    if (d.conversation.empty()) {
      mask(d.text, changes);
      return {};
    }
    Json conversation = Json::parse(d.conversation);
    if (!mask_all(conversation, changes)) return {};
    d.conversation = conversation.dump();
    Changes same;  // what the messages say stands in the text once more, for the other rules
    mask(d.text, same);
    return {};
  }

 private:
  using Changes = std::map<std::string, int64_t>;

  bool mask(std::string& text, Changes& changes) const {
    bool found = false;
    for (const PiiKind* kind : kinds_) {
      const int64_t n = mask_pii(text, *kind, mask_);
      if (n > 0) changes[fmt::format("pii.{}", kind->key)] += n;
      found |= n > 0;
    }
    return found;
  }

  // All texts in messages, tools and documents, and numbers too, which the key before them may explain; what names the
  // form of a message stays.
  bool mask_all(Json& value, Changes& changes, const std::string& name = "") const {
    bool found = false;
    if (value.is_object()) {
      for (auto& [key, one] : value.items())
        if (key != "role" && key != "from" && key != "type") found |= mask_all(one, changes, key);
    } else if (value.is_array()) {
      for (Json& one : value) found |= mask_all(one, changes, name);
    } else if (value.is_string()) {
      found = mask_string(value.get_ref<std::string&>(), changes);
    } else if (value.is_number_integer()) {
      found = mask_number(value, name + " ", changes);
    }
    return found;
  }
  // `before` may explain the number, unless it is personal data itself.
  bool mask_number(Json& value, const std::string& before, Changes& changes) const {
    Changes as_text = changes;
    std::string text = before + value.dump();
    if (!mask(text, as_text)) return false;
    if (!text.starts_with(before)) return mask_number(value, "", changes);
    value = text.substr(before.size());
    changes = std::move(as_text);
    return true;
  }
  // Arguments of a function are JSON in a string, and stay that where a mask comes into the place of a number.
  bool mask_string(std::string& text, Changes& changes) const {
    Changes as_text = changes;
    std::string masked = text;
    if (!mask(masked, as_text)) return false;
    if (is_json(text) && !is_json(masked)) {
      Json inner = Json::parse(text);
      const bool found = mask_all(inner, changes);
      text = inner.dump();
      return found;
    }
    text = std::move(masked);
    changes = std::move(as_text);
    return true;
  }
  static bool is_json(std::string_view text) {
    constexpr int kDeepest = 64;
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos || (text[first] != '{' && text[first] != '[')) return false;
    int deepest = 0;
    const auto look = [&](int depth, Json::parse_event_t, Json&) {
      deepest = std::max(deepest, depth);
      return depth <= kDeepest;
    };
    return !Json::parse(text, look, false).is_discarded() && deepest <= kDeepest;
  }

  std::string mask_;
  std::vector<const PiiKind*> kinds_;
};

}  // namespace

std::span<const PiiKind> pii_kinds() { return kKinds; }

int64_t mask_pii(std::string& text, const PiiKind& kind, std::string_view mask) {
  const std::string_view old = text;
  std::string with(mask), masked;
  if (const size_t place = with.find("{}"); place != std::string::npos) with.replace(place, 2, kind.label);
  int64_t n = 0;
  size_t at = 0;
  for (auto f = kind.find(old, at); f.begin != pii::kNone; f = kind.find(old, at)) {
    (masked += old.substr(at, f.begin - at)) += with;
    at = f.end;
    ++n;
  }
  if (n > 0) text = masked + std::string(old.substr(at));
  return n;
}

std::unique_ptr<Rule> make_pii_rule(const PiiConfig& config) { return std::make_unique<Pii>(config); }

}  // namespace weft
