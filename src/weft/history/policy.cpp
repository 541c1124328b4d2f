#include "weft/history/policy.h"

#include <algorithm>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"
#include "weft/base/plain_file.h"
#include "weft/forecast/toml_values.h"

namespace weft {
namespace {

constexpr int64_t kMostPolicyBytes = 1 << 20;

std::optional<std::vector<std::string>> texts_in(const TomlTable& table, const char* key) {
  if (!table.has(key)) return {};
  std::vector<std::string> texts;
  table.get(key, texts);
  return texts;
}

bool is_among(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// What a part's licence is by its own records, or else by the policy.
std::string licence_under(const Policy& policy, const LicensedPart& part) {
  if (!part.licence.empty()) return part.licence;
  for (const std::string& name : part.names)
    if (const auto at = policy.licence_of.find(name); at != policy.licence_of.end()) return at->second;
  return "";
}

void judge_licence(const Policy& policy, const LicensedPart& part, std::vector<std::string>& reasons) {
  const std::string all = licence_under(policy, part);
  if (all.empty()) {
    reasons.push_back(fmt::format("{}: its licence is not known; [[licence]] of = {} says it", part.what,
                                  part.names.empty() ? "\"\"" : in_quotes(part.names.back())));
    return;
  }
  for (size_t at = 0; at < all.size();) {  // several, with ", " between
    const size_t end = std::min(all.find(", ", at), all.size());
    if (const std::string one = all.substr(at, end - at); !is_among(*policy.licences, one))
      reasons.push_back(
          fmt::format("{}: its licence {} is none of {}", part.what, one, fmt::join(*policy.licences, ", ")));
    at = end + 2;
  }
}

}  // namespace

Policy parse_policy(const std::string& text, const std::filesystem::path& file) {
  const TomlTable table(text, file.string());
  table.refuse_others({"log", "licences", "require", "released_by", "licence"});
  Policy policy{.file = file};
  table.get("log", policy.log);
  if (policy.log.empty()) throw ConfigError(fmt::format("{}: log = \"\": must name a file", table.place()));
  policy.licences = texts_in(table, "licences");
  if (policy.licences)
    for (std::string& licence : *policy.licences) licence = lower_ascii(licence);
  policy.released_by = texts_in(table, "released_by");
  for (const std::string& one : texts_in(table, "require").value_or(std::vector<std::string>())) {
    const auto requirement = parse_requirement(one);
    if (!requirement)
      throw ConfigError(fmt::format("{}: require: {}: expected {}", table.place(), in_quotes(one), kRequirementForm));
    policy.require.push_back(*requirement);
  }
  for (const TomlTable& one : table.tables("licence")) {
    std::string of, is;
    one.need("of", of);
    one.need("is", is);
    one.refuse_others({"of", "is"});
    policy.licence_of[of] = lower_ascii(is);
  }
  return policy;
}

Policy read_policy(const std::filesystem::path& file) {
  if (!is_plain_file(file, kMostPolicyBytes))
    throw FileError(fmt::format("{}: no such file; --policy names a policy.toml", file.string()));
  const MappedFile mapped(file);
  return parse_policy(std::string(mapped.text()), file);
}

std::vector<std::string> objections(const Policy& policy, const std::vector<LicensedPart>& parts,
                                    const std::map<std::string, double>& results, const std::string& user) {
  std::vector<std::string> reasons;
  if (policy.released_by && !is_among(*policy.released_by, user))
    reasons.push_back(fmt::format("{} may not release: released_by is {}", user, fmt::join(*policy.released_by, ", ")));
  if (policy.licences && parts.empty()) reasons.emplace_back("nothing says what it was made from");
  if (policy.licences)
    for (const LicensedPart& part : parts) judge_licence(policy, part, reasons);
  for (const Requirement& needed : policy.require) {
    const auto at = results.find(needed.result);
    if (at == results.end())
      reasons.push_back(fmt::format("{} is required, and there is no such result", needed.to_string()));
    else if (!needed.is_met(at->second))
      reasons.push_back(fmt::format("{} is required, and it is {:.4f}", needed.to_string(), at->second));
  }
  return reasons;
}

}  // namespace weft
