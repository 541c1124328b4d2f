#include "weft/apps/launch_files.h"

#include <algorithm>
#include <cctype>

#include "weft/apps/commands.h"
#include "weft/base/error.h"

namespace weft {
namespace {

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(uint8_t(c)) || std::string_view("_-./=:,+@%").find(c) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string head_of(const LaunchSpec& s, const std::string& what) {
  return fmt::format("# {}\n# Written by: {}\n", what, s.made_by);
}

}  // namespace

std::vector<std::string> supervise_words(const LaunchSpec& s, const std::string& hosts) {
  std::vector<std::string> words{"weft", "supervise", s.recipe};
  words.insert(words.end(), s.overrides.begin(), s.overrides.end());
  words.push_back(s.ranks > 1 ? "run.ranks=mpi" : "run.ranks=local");
  if (!hosts.empty() && s.ranks > 1) words.insert(words.end(), {"--hosts", hosts});
  return words;
}

int64_t memory_mib(const LaunchSpec& s) {
  constexpr int64_t kMib = 1 << 20;
  return (s.node_bytes + s.node_bytes / 4 + kMib - 1) / kMib;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

std::string job_name_of(const std::string& text) {
  constexpr size_t kLongest = 40;  // pods' names are longer, and have at most 63
  std::string name;
  for (const char c : text.substr(text.find_last_of('/') == std::string::npos ? 0 : text.find_last_of('/') + 1)) {
    const char lower = char(std::tolower(uint8_t(c)));
    const bool good = std::isalnum(uint8_t(lower)) && uint8_t(lower) < 128;
    if (good || (!name.empty() && name.back() != '-')) name += good ? lower : '-';
  }
  name = name.substr(0, kLongest);
  while (!name.empty() && name.back() == '-') name.pop_back();
  if (name.empty() || std::isdigit(uint8_t(name[0]))) name = name.empty() ? "weft" : "weft-" + name;
  return name;
}

std::string slurm_script(const LaunchSpec& s) {
  std::string text =
      "#!/bin/bash\n" + head_of(s, "sbatch THIS; the same again goes on. weft is in the PATH of every node.");
  const auto option = [&](const std::string& words) { text += "#SBATCH " + words + "\n"; };
  option("--job-name=" + s.name);
  option(fmt::format("--nodes={} --ntasks={} --ntasks-per-node={}", s.nodes, s.ranks, s.slots()));
  if (s.threads > 0) option(fmt::format("--cpus-per-task={}", s.threads));
  if (s.gpus) option("--gpus-per-task=1");
  if (s.node_bytes > 0) option(fmt::format("--mem={}M", memory_mib(s)));
  if (!s.partition.empty()) option("--partition=" + s.partition);
  if (!s.time_limit.empty()) option("--time=" + s.time_limit);
  if (s.chain > 0) {
    text +=
        "# One job after the other: each goes on where the one before was stopped, and ends at once when all is "
        "done.\n";
    option(fmt::format("--array=1-{}%1", s.chain));
    option("--output=" + s.name + "-%A-%a.out");
  } else {
    text += fmt::format(
        "# Status {} (stopped, and saved) puts the job back into the queue where slurm.conf has RequeueExit={}.\n",
        kExitPreempted, kExitPreempted);
    option("--output=" + s.name + "-%j.out --open-mode=append");
  }
  option("--requeue");
  text +=
      "# A notice before the time limit, and with preempt_send_user_signal before preemption, for the batch process "
      "itself:\n";
  option(fmt::format("--signal=B:USR1@{}", s.notice_s));
  text += "# exec: the supervisor is that process. mpirun finds the nodes of the job by itself.\n";
  return text + "exec " + shell_line(supervise_words(s, "")) + "\n";
}

std::string ssh_script(const LaunchSpec& s) {
  std::string hosts;
  for (const std::string& host : s.hosts) hosts += " " + host;
  return "#!/bin/sh\n" + head_of(s, "Run on one of the hosts, in a folder that all of them see.") +
         fmt::format(R"(set -eu
here=$(pwd)
own=$(weft --version)
for host in{}; do
  its=$(ssh -n -o BatchMode=yes -o ConnectTimeout=10 "$host" "cd '$here' && test -r {} && weft --version") || {{
    echo "$host: does not answer, has no weft in its PATH, or does not see {} in $here" >&2
    exit 1
  }}
  [ "$its" = "$own" ] || {{ echo "$host: another weft: $its" >&2; exit 1; }}
done
exec {}
)",
                     hosts, s.recipe, s.recipe, shell_line(supervise_words(s, s.hostfile)));
}

}  // namespace weft
