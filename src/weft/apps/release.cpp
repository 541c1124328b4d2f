#include "weft/apps/release.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/required_results.h"
#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/host_name.h"
#include "weft/base/is_there.h"
#include "weft/history/chained_log.h"
#include "weft/history/policy.h"
#include "weft/models/fingerprint.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using LogJson = nlohmann::ordered_json;

fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path).lexically_normal() : real;
}

std::vector<Policy> policies_of(const ReleaseSpec& spec) {
  std::vector<fs::path> files;
  const auto add = [&](const fs::path& file) {
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  };
  for (const std::string& named : spec.policies) add(real_path(named));
  for (const std::string& model : spec.models)
    for (const fs::path& found : policies_around(model)) add(found);
  std::vector<Policy> policies;
  for (const fs::path& file : files) policies.push_back(read_policy(file));
  return policies;
}

// What policies are asked about, and what their logs say of it.
struct ReleaseQuestion {
  LogJson facts = LogJson::object();
  std::vector<std::string> reasons = {};  // why it is refused
};

void ask_of(const std::string& name, const ReleaseSpec& spec, const std::vector<Policy>& policies,
            ReleaseQuestion& asked) {
  const fs::path folder = model_folder_of(name, [](const std::string& line) { std::cerr << line << "\n"; });
  const ModelOrigin origin = origin_of(folder);
  LogJson model{{"path", origin.folder.string()}};
  model["weights"] = fingerprint_of_weights(folder);
  model["parts"] = to_json(origin.parts);
  const bool any = std::any_of(policies.begin(), policies.end(), [](const Policy& p) { return !p.require.empty(); });
  const TaskResults results = any ? recorded_results(folder, spec.results) : TaskResults();
  for (const auto& [result, value] : results) model["results"][result] = value;
  asked.facts["models"].push_back(model);
  for (const Policy& policy : policies)
    for (const std::string& reason : objections(policy, origin.parts, results, name_of_user()))
      asked.reasons.push_back(fmt::format("{} ({})", reason, policy.file.string()));
}

void tell_logs(const std::vector<Policy>& policies, const std::string& what, const LogJson& facts,
               const std::vector<std::string>& reasons = {}) {
  for (const Policy& policy : policies) {
    LogJson entry = log_entry(what);
    entry["policy"] = {{"file", policy.file.string()}, {"contents", hash_of_file(policy.file)}};
    entry.update(facts);
    if (!reasons.empty()) entry["reasons"] = reasons;
    append_to_log(policy.log_file(), entry);
  }
}

}  // namespace

int released(const ReleaseSpec& spec, const std::function<int()>& write) {
  const std::vector<Policy> policies = policies_of(spec);
  if (policies.empty()) return write();
  ReleaseQuestion asked{.facts = {{"command", spec.command}, {"to", real_path(spec.to).string()}}};
  asked.facts["models"] = LogJson::array();
  for (const std::string& model : spec.models) try {
      ask_of(model, spec, policies, asked);
    } catch (const Error& e) { asked.reasons.emplace_back(e.what()); }
  if (!asked.reasons.empty()) {
    asked.facts["asked_for"] = spec.models;
    tell_logs(policies, "refused", asked.facts, asked.reasons);
    throw Error(fmt::format("refused by a policy; nothing is written:\n  {}", fmt::join(asked.reasons, "\n  ")));
  }
  tell_logs(policies, "allowed", asked.facts);
  int status = 0;
  try {
    status = write();
  } catch (const std::exception& e) {
    tell_logs(policies, "failed", asked.facts, {e.what()});
    throw;
  }
  tell_logs(policies, status == 0 ? "written" : "failed", asked.facts);
  return status;
}

std::vector<fs::path> policies_around(const fs::path& model) {
  const fs::path folder = real_path(model);
  std::vector<fs::path> folders{folder, folder.parent_path(), folder / "checkpoints"};
  if (folder.parent_path().filename() == "checkpoints") {
    const fs::path run = folder.parent_path().parent_path();
    folders.insert(folders.end(), {run, run.parent_path()});
  }
  std::vector<fs::path> found;
  for (const fs::path& at : folders)
    if (is_there(at / "policy.toml")) found.push_back(at / "policy.toml");
  return found;
}

std::string name_of_user() {
  std::array<char, 4096> buffer = {};
  struct passwd entry = {}, *found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return fmt::format("user {}", ::getuid());
}

LogJson log_entry(const std::string& what) {
  return {{"time", log_time()}, {"by", name_of_user()}, {"host", name_of_host()}, {"what", what}};
}

LogJson to_json(const std::vector<LicensedPart>& parts) {
  LogJson all = LogJson::array();
  for (const LicensedPart& part : parts)
    all.push_back(
        {{"what", part.what}, {"names", part.names}, {"licence", part.licence.empty() ? "unknown" : part.licence}});
  return all;
}

}  // namespace weft
