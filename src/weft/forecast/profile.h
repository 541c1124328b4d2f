// How much of a device's best rates a program reaches, and what of its communication it hides: the numbers in which
// training programs differ. Those of kProfiles are fitted to published runs (docs/planning.md says how, and how well).
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct ProgramProfile {
  std::string name = "any program";
  std::vector<std::string> frameworks = {};  // parts of the names that sources give it, in small letters
  bool experts = false;                      // for models with experts, or for dense ones
  std::vector<std::string> fixed = {};       // numbers that are known of the program: fits leave them
  // Parts of the rates of DeviceSpec::products (fp4: of fp8's), and of memory's.
  double products = 0.85, products8 = 0.75, products4 = 1.1, grouped = 0.65;
  double attention = 0.6, attention_backward = 0.5;
  double memory = 0.75, update = 0.7;
  double newer = 1, newer_attention = 1;  // what is left of the rates, for each generation of devices after Ampere
  double scores = 0;                      // 1: attention writes its scores to memory; 0: it keeps none
  double slices = 0;   // 1: ranks of tp each send a slice of what a stage sends on; 0: each sends all of it
  double by_rank = 0;  // 1: sums and gathers are a collective for each rank that has a part; 0: one for all
  double casts = 0.5;  // of what making fp8 of every operand by itself would move; the rest is fused away
  // Parts of communication that no computation hides.
  double tp_exposed = 1, ep_exposed = 1, ep_inside = 1, cp_exposed = 0.3, pp_exposed = 0.5;
  double tp_wait_us = 0;       // at each collective of tp in an action, for ranks of a layer that are late
  double gather_hidden = 0.9;  // ZeRO-3's gathers go on behind this part of an action's computation
  double reduce_hidden = 0.8;  // sums of gradients, and gathers of new weights, behind this part of a micro-batch's
  double slowdown = 0.1;       // of computation beside communication, as a part of the shorter of the two
  double network = 0.8;        // part of scale-out's rate that collectives reach
  double hop_us = 10;          // of a ring, from one node to the next
  double launch_us = 4;        // the least time from one kernel to the next
  double gap_us = 0;           // beside each kernel, where a program waits for one before it launches the next
  double action_ms = 0;        // of a micro-batch's forward, and its backward, beside kernels
  double gain = 0;             // how much faster a release is than that of a year before, as a logarithm ...
  double release = 2026;       // ... and the year for which the numbers above are
  double memory_kept = 1;      // of weights, gradients and states that weft plans for the same layout ...
  double memory_part = 1;      // ... of all else, which is activations mostly ...
  double memory_base = 0;      // ... and bytes beside it: contexts, communication buffers, fragments
};

// The numbers by name, for reading, fitting and printing.
struct ProfileNumber {
  const char* name;
  double ProgramProfile::*value;
  double low, high;
  bool of_time;          // decides over the time of a step, so that it can be fitted to measured rates
  bool wide = false;     // may differ from program to program by a factor of a hundred
  bool experts = false;  // is another for a program's models with experts
};
const std::vector<ProfileNumber>& profile_numbers();

class Profiles {
 public:
  // TOML: [[program]] tables with name, frameworks, experts and numbers. Throws ConfigError with source and line for
  // what is no such file, and for numbers out of range.
  static Profiles parse(const std::string& toml, const std::string& source);
  static const Profiles& built_in();
  explicit Profiles(std::vector<ProgramProfile> all) : all_(std::move(all)) {}
  // Of the first program whose framework this is ("NeMo/Megatron-Core"); else that of any program, which is the first.
  const ProgramProfile& of(std::string_view framework, bool experts) const;
  const std::vector<ProgramProfile>& all() const { return all_; }
  std::string to_toml() const;

 private:
  std::vector<ProgramProfile> all_;
};

// What a rank of the program needs at most where weft plans `planned` bytes, of which `kept` are weights, gradients and
// states.
double peak_memory(const ProgramProfile& profile, double planned, double kept);

// The profile as it is for a release of another year.
ProgramProfile at_release(const ProgramProfile& profile, double year);

}  // namespace weft
