#include "weft/forecast/profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/forecast/toml_values.h"

namespace weft {
namespace {

std::string small_letters(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return small;
}

ProgramProfile read_program(const TomlTable& table) {
  ProgramProfile profile;
  table.need("name", profile.name);
  table.get("frameworks", profile.frameworks);
  table.get("experts", profile.experts);
  table.get("fixed", profile.fixed);
  std::vector<std::string> keys{"name", "frameworks", "experts", "fixed"};
  for (const ProfileNumber& n : profile_numbers()) {
    table.get(n.name, profile.*n.value, n.low, n.high);
    keys.emplace_back(n.name);
  }
  table.refuse_others(keys);
  return profile;
}

}  // namespace

const std::vector<ProfileNumber>& profile_numbers() {
  using P = ProgramProfile;
  static const std::vector<ProfileNumber> all{
      {"products", &P::products, 0.01, 1.3, true, false, true},
      {"products8", &P::products8, 0.01, 1.3, true},
      {"products4", &P::products4, 0.01, 3, true},
      {"grouped", &P::grouped, 0.01, 1.3, true, false, true},
      {"attention", &P::attention, 0.01, 1.3, true},
      {"attention_backward", &P::attention_backward, 0.01, 1.3, true},
      {"memory", &P::memory, 0.01, 3, true, false, true},
      {"update", &P::update, 0.01, 1.3, true},
      {"newer", &P::newer, 0.3, 1.2, true, false, true},
      {"newer_attention", &P::newer_attention, 0.3, 1.2, true},
      {"scores", &P::scores, 0, 8, false},
      {"slices", &P::slices, 0, 1, false},
      {"by_rank", &P::by_rank, 0, 1, false},
      {"casts", &P::casts, 0, 2, true},
      {"tp_exposed", &P::tp_exposed, 0, 1.3, true},
      {"tp_wait_us", &P::tp_wait_us, 0, 10000, true, true},
      {"ep_exposed", &P::ep_exposed, 0, 1.3, true, false, true},
      {"ep_inside", &P::ep_inside, 0, 1.3, true, false, true},
      {"cp_exposed", &P::cp_exposed, 0, 1.3, true},
      {"pp_exposed", &P::pp_exposed, 0, 1.3, true, false, true},
      {"gather_hidden", &P::gather_hidden, 0, 1.3, true},
      {"reduce_hidden", &P::reduce_hidden, 0, 1.3, true},
      {"slowdown", &P::slowdown, 0, 1, true},
      {"network", &P::network, 0.05, 1.3, true},
      {"hop_us", &P::hop_us, 0, 2000, true, true},
      {"launch_us", &P::launch_us, 0, 1000, true, true, true},
      {"gap_us", &P::gap_us, 0, 1000, true, true, true},
      {"action_ms", &P::action_ms, 0, 1000, true, true},
      {"gain", &P::gain, 0, 1, true, false, true},
      {"release", &P::release, 2000, 2100, false},
      {"memory_kept", &P::memory_kept, 0.1, 10, false},
      {"memory_part", &P::memory_part, 0.1, 10, false},
      {"memory_base", &P::memory_base, 0, 1e12, false},
  };
  return all;
}

Profiles Profiles::parse(const std::string& toml, const std::string& source) {
  std::vector<ProgramProfile> all;
  const TomlTable file(toml, source);
  file.refuse_others({"program"});
  for (const TomlTable& table : file.tables("program")) all.push_back(read_program(table));
  if (all.empty()) throw ConfigError(fmt::format("{}: has no [[program]]", source));
  return Profiles(std::move(all));
}

const ProgramProfile& Profiles::of(std::string_view framework, bool experts) const {
  const std::string name = small_letters(framework);
  const ProgramProfile* any = &all_.front();
  for (const ProgramProfile& p : all_) {
    if (p.experts != experts) continue;
    if (p.frameworks.empty() && any->experts != experts) any = &p;
    for (const std::string& part : p.frameworks)
      if (name.find(part) != std::string::npos) return p;
  }
  return *any;
}

std::string Profiles::to_toml() const {
  std::string text;
  for (const ProgramProfile& p : all_) {
    text += fmt::format("[[program]]\nname = \"{}\"\n", p.name);
    if (!p.frameworks.empty()) text += fmt::format("frameworks = [\"{}\"]\n", fmt::join(p.frameworks, "\", \""));
    if (p.experts) text += "experts = true\n";
    if (!p.fixed.empty()) text += fmt::format("fixed = [\"{}\"]\n", fmt::join(p.fixed, "\", \""));
    const ProgramProfile plain;
    for (const ProfileNumber& n : profile_numbers())
      if (p.*n.value != plain.*n.value) text += fmt::format("{} = {:.4g}\n", n.name, p.*n.value);
    text += "\n";
  }
  return text;
}

double peak_memory(const ProgramProfile& profile, double planned, double kept) {
  return kept * profile.memory_kept + (planned - kept) * profile.memory_part + profile.memory_base;
}

ProgramProfile at_release(const ProgramProfile& profile, double year) {
  ProgramProfile p = profile;
  if (year <= 0 || p.gain == 0) return p;
  const double faster = std::exp(p.gain * (year - p.release));
  p.grouped *= faster;
  p.memory *= faster;
  p.ep_exposed /= faster;
  p.ep_inside /= faster;
  p.launch_us /= faster;
  p.gap_us /= faster;
  return p;
}

}  // namespace weft
