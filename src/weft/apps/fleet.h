// What ranks a supervised run may have, as the user's command or hostfile says ([fleet]).
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weft/apps/child_command.h"
#include "weft/apps/hosts.h"
#include "weft/recipe/recipe.h"

namespace weft {

class Fleet {
 public:
  explicit Fleet(const Recipe& recipe);
  // False: nothing tells, and the run has the ranks of its recipe.
  bool tells() const { return !command_.empty() || !hostfile_.empty(); }

  // Asks, and waits for the answer: all that there is, but for hosts that are lost. Where the command fails, or the
  // file cannot be read, the answer before stands, and `problem` says why; Error where there was none before. None: the
  // run is to stop, and nothing was read.
  std::optional<Available> ask(const std::function<bool()>& is_asked_to_stop);
  const std::string& problem() const { return problem_; }

  // Tries each of several hosts, as mpirun would reach it: those that do not answer are lost until they do. Returns
  // them.
  std::vector<std::string> find_lost(const std::function<bool()>& is_asked_to_stop);

  // The answer before, but for hosts that are lost.
  Available ask_last() const { return without_lost(*last_); }
  // While a run goes on, from time to time: whether something else has been answered since. Does not wait.
  bool has_changed();

 private:
  Available read(const ChildCommand::Answer* answer);
  Available without_lost(Available all) const;
  std::vector<std::pair<std::string, ChildCommand>> probes_of(const std::vector<Host>& hosts) const;
  void start_questions();
  ChildCommand asked() const;

  const std::string command_, hostfile_;
  const double poll_s_;
  const bool processes_;
  std::optional<Available> last_;  // whole
  std::set<std::string> lost_;
  std::string problem_;
  // Of a question that is under way, or when the next is due.
  double next_s_ = 0;
  bool asking_ = false;
  std::optional<ChildCommand> question_;
  std::vector<std::pair<std::string, ChildCommand>> probes_;
};

}  // namespace weft
