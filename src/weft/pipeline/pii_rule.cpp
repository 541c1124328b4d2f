// The rule that masks personal data: in texts, and in all that a conversation says.
#include "weft/pipeline/pii.h"
#include "weft/pipeline/rule.h"

namespace weft {
namespace {

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

  std::optional<Drop> judge(Document& d, Counts& counts) const override {
    if (d.conversation.empty()) {
      mask(d.text, counts);
      return {};
    }
    Json conversation = Json::parse(d.conversation);
    if (!mask_all(conversation, counts)) return {};
    d.conversation = conversation.dump();
    Counts same;  // what the messages say stands in the text once more, for the other rules
    mask(d.text, same);
    return {};
  }

 private:
  using Counts = std::map<std::string, int64_t>;

  bool mask(std::string& text, Counts& counts) const {
    bool found = false;
    for (const PiiKind* kind : kinds_) {
      const int64_t n = mask_pii(text, *kind, mask_);
      if (n > 0) counts[fmt::format("pii.{}", kind->key)] += n;
      found |= n > 0;
    }
    return found;
  }

  // All texts in messages, tools and documents, and numbers too; what names the form of a message stays.
  bool mask_all(Json& value, Counts& counts) const {
    bool found = false;
    if (value.is_object()) {
      for (auto& [key, one] : value.items())
        if (key != "role" && key != "from" && key != "type") found |= mask_all(one, counts);
    } else if (value.is_array()) {
      for (Json& one : value) found |= mask_all(one, counts);
    } else if (value.is_string()) {
      found = mask_string(value, counts);
    } else if (value.is_number_integer()) {
      std::string digits = value.dump();
      if ((found = mask(digits, counts))) value = digits;
    }
    return found;
  }
  // Arguments of a function are JSON in a string, and stay that.
  bool mask_string(Json& value, Counts& counts) const {
    auto& text = value.get_ref<std::string&>();
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) {
      Json inner = Json::parse(text, nullptr, false);
      if (!inner.is_discarded()) {
        const bool found = mask_all(inner, counts);
        if (found) text = inner.dump();
        return found;
      }
    }
    return mask(text, counts);
  }

  std::string mask_;
  std::vector<const PiiKind*> kinds_;
};

}  // namespace

std::unique_ptr<Rule> make_pii_rule(const PiiConfig& config) { return std::make_unique<Pii>(config); }

}  // namespace weft
