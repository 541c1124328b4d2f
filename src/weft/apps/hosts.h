// Hosts on which ranks that are processes run.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct Host {
  std::string name;  // or address
  int64_t slots = 1;
  bool operator==(const Host&) const = default;
};

// What a run may have: so many ranks; on hosts, if these are told.
struct Available {
  int64_t ranks = 0;
  std::vector<Host> hosts = {};
  bool operator==(const Available&) const = default;
};

// The text of a hostfile, a line for each host: "10.0.0.1 slots=4" (without slots: 1; "#" begins a comment); or, where
// `may_be_number`, a number alone. A host that stands there twice has both its slots. Throws ConfigError that names
// `source` and line where the text is neither.
Available available_of(const std::string& text, const std::string& source, bool may_be_number);
// That of a hostfile. Throws FileError where it cannot be read.
Available available_in(const std::string& hostfile);

int64_t slots_of(const std::vector<Host>& hosts);
// Whether a name or an address is this host's.
bool is_this_host(const std::string& name);
// This host first, where the run is led from; the others in their order. Throws ConfigError that names `source` where
// it is not among them.
std::vector<Host> this_host_first(std::vector<Host> hosts, const std::string& source);
// So many slots of the first of them.
std::vector<Host> first_slots(const std::vector<Host>& hosts, int64_t ranks);

// "a:2,b:4", as mpirun --host has it; and back.
std::string to_string(const std::vector<Host>& hosts);
std::vector<Host> hosts_of(std::string_view text);

// In the environment of an attempt: the hosts to start ranks on, so written.
inline constexpr const char* kHosts = "WEFT_HOSTS";

}  // namespace weft
