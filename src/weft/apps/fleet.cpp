#include "weft/apps/fleet.h"

#include <unistd.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr double kAnswer_s = 60, kProbe_s = 10;

// A host is there when mpirun can start a program on it: by the agent, and over the networks, that the run would use.
ChildCommand probe_of(const Host& host) {
  std::vector<std::string> words{"mpirun"};
  if (::geteuid() == 0) words.push_back("--allow-run-as-root");
  words.insert(words.end(), {"--host", host.name + ":1", "-n", "1", "true"});
  return ChildCommand(words, kProbe_s, true);
}

}  // namespace

Fleet::Fleet(const Recipe& recipe)
    : command_(recipe.fleet.available),
      hostfile_(recipe.fleet.hosts),
      poll_s_(recipe.fleet.poll_seconds),
      processes_(recipe.run.ranks == RanksKind::mpi) {}

ChildCommand Fleet::asked() const { return ChildCommand({"sh", "-c", command_}, kAnswer_s); }

// Of the command's answer, or of the file where there is no command.
Available Fleet::read(const ChildCommand::Answer* answer) {
  problem_.clear();
  const std::string source = fmt::format("fleet.available = \"{}\"", command_);
  try {
    if (answer != nullptr && !answer->good) throw Error(fmt::format("{}: it {}", source, answer->text));
    Available all = answer == nullptr ? available_in(hostfile_) : available_of(answer->text, source, true);
    if (!all.hosts.empty() && !processes_)
      throw ConfigError(
          fmt::format("{} prints hosts, and ranks are threads of this process: run.ranks = \"mpi\"", source));
    if (!all.hosts.empty()) all.hosts = this_host_first(all.hosts, answer == nullptr ? hostfile_ : source);
    last_ = std::move(all);
  } catch (const Error& e) {
    if (!last_) throw;
    problem_ = e.what();
  }
  return *last_;
}

Available Fleet::without_lost(Available all) const {
  if (all.hosts.empty()) return all;
  std::erase_if(all.hosts, [&](const Host& h) { return lost_.contains(h.name); });
  all.ranks = slots_of(all.hosts);
  return all;
}

std::optional<Available> Fleet::ask(const std::function<bool()>& is_asked_to_stop) {
  question_.reset();
  probes_.clear();
  asking_ = false;
  next_s_ = now_s() + poll_s_;
  if (command_.empty()) return without_lost(read(nullptr));
  const ChildCommand::Answer answer = asked().wait(is_asked_to_stop);
  if (is_asked_to_stop()) return std::nullopt;
  return without_lost(read(&answer));
}

// This host answers: it is where we are.
std::vector<std::pair<std::string, ChildCommand>> Fleet::probes_of(const std::vector<Host>& hosts) const {
  std::vector<std::pair<std::string, ChildCommand>> probes;
  for (const Host& host : hosts)
    if (!is_this_host(host.name)) probes.emplace_back(host.name, probe_of(host));
  return probes;
}

std::vector<std::string> Fleet::find_lost(const std::function<bool()>& is_asked_to_stop) {
  constexpr size_t kAtOnce = 32;
  if (!last_) return {};
  lost_.clear();
  const std::vector<Host>& all = last_->hosts;
  for (size_t i = 0; i < all.size(); i += kAtOnce)
    for (auto& [name, probe] : probes_of({all.begin() + i, all.begin() + std::min(all.size(), i + kAtOnce)}))
      if (!probe.wait(is_asked_to_stop).good && !is_asked_to_stop()) lost_.insert(name);
  return {lost_.begin(), lost_.end()};
}

void Fleet::start_questions() {
  asking_ = true;
  if (!command_.empty()) question_.emplace(asked());
  std::vector<Host> lost;
  for (const Host& host : last_->hosts)
    if (lost_.contains(host.name)) lost.push_back(host);
  probes_ = probes_of(lost);
}

bool Fleet::has_changed() {
  if (!last_ || !tells() || poll_s_ == 0) return false;
  if (!asking_ && now_s() < next_s_) return false;
  if (!asking_) start_questions();
  const auto answer = question_ ? question_->poll() : std::nullopt;
  if (question_ && !answer) return false;
  for (auto& [name, probe] : probes_)
    if (!probe.poll()) return false;
  const Available before = without_lost(*last_);
  for (auto& [name, probe] : probes_)
    if (probe.poll()->good) lost_.erase(name);
  question_.reset();
  probes_.clear();
  asking_ = false;
  next_s_ = now_s() + poll_s_;
  return without_lost(read(answer ? &*answer : nullptr)) != before;
}

}  // namespace weft
