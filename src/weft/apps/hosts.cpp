#include "weft/apps/hosts.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

constexpr size_t kShownOfLine = 80;  // characters of a wrong line

std::optional<int64_t> slots_in(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  const bool good = error == std::errc() && end == text.data() + text.size() && n >= 0 && n <= kMostRanks;
  return good ? std::optional(n) : std::nullopt;
}

// Names go into mpirun's list of hosts, where ":" and "," end them.
bool is_name(const std::string& word) {
  constexpr size_t kLongest = 255;
  return !word.empty() && word.size() <= kLongest && word[0] != '-' &&
         std::all_of(word.begin(), word.end(),
                     [](char c) { return std::isalnum(uint8_t(c)) || c == '.' || c == '-' || c == '_'; });
}

std::string without_blanks(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1));
}

std::optional<Host> host_in(const std::string& line) {
  std::istringstream words(line);
  Host host;
  words >> host.name;
  if (!is_name(host.name)) return {};
  for (std::string word; words >> word;) {
    if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
    const auto slots = word.starts_with("slots=") ? slots_in(std::string_view(word).substr(6)) : std::nullopt;
    if (!slots) return {};
    host.slots = *slots;
  }
  return host;
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses addresses_of(const std::string& name) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) found = nullptr;
  return {found, [](addrinfo* a) {
            if (a != nullptr) ::freeaddrinfo(a);
          }};
}

bool is_same_address(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(b)->sin_addr, sizeof(in_addr)) == 0;
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

Available available_of(const std::string& text, const std::string& source, bool may_be_number) {
  if (may_be_number)
    if (const auto ranks = slots_in(without_blanks(text))) return {.ranks = *ranks};
  Available all;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = without_blanks(std::string_view(line).substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::optional<Host> host = host_in(line);
    if (!host)
      throw ConfigError(fmt::format("{}, line {}: \"{}\" is no host; a line is as \"10.0.0.1 slots=4\"{}", source,
                                    number, line.substr(0, kShownOfLine),
                                    may_be_number ? ", or all is a number of ranks" : ""));
    const auto same =
        std::find_if(all.hosts.begin(), all.hosts.end(), [&](const Host& h) { return h.name == host->name; });
    if (same == all.hosts.end())
      all.hosts.push_back(*host);
    else
      same->slots += host->slots;
    all.ranks += host->slots;
  }
  return all;
}

Available available_in(const std::string& hostfile) {
  std::ifstream file(hostfile, std::ios::binary);
  if (!file) throw FileError(fmt::format("fleet.hosts = \"{}\": the hostfile cannot be read", hostfile));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return available_of(text, hostfile, false);
}

int64_t slots_of(const std::vector<Host>& hosts) {
  int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

bool is_this_host(const std::string& name) {
  if (name == "localhost" || name == name_of_host()) return true;
  const Addresses its = addresses_of(name);
  ifaddrs* list = nullptr;
  if (!its || ::getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* own = list; own != nullptr && !found; own = own->ifa_next)
    for (const addrinfo* a = its.get(); a != nullptr && !found; a = a->ai_next)
      found = is_same_address(own->ifa_addr, a->ai_addr);
  ::freeifaddrs(list);
  return found;
}

std::vector<Host> this_host_first(std::vector<Host> hosts, const std::string& source) {
  const auto here =
      std::find_if(hosts.begin(), hosts.end(), [](const Host& h) { return is_this_host(h.name) && h.slots > 0; });
  if (here == hosts.end())
    throw ConfigError(
        fmt::format("{}: this host, {}, is not among the hosts; the first rank runs where the command was "
                    "started: start it on one of them",
                    source, name_of_host()));
  std::rotate(hosts.begin(), here, here + 1);
  return hosts;
}

std::vector<Host> first_slots(const std::vector<Host>& hosts, int64_t ranks) {
  std::vector<Host> used;
  for (const Host& host : hosts) {
    if (ranks <= 0) break;
    if (host.slots == 0) continue;
    used.push_back({host.name, std::min(host.slots, ranks)});
    ranks -= used.back().slots;
  }
  return used;
}

std::string to_string(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return text;
}

std::vector<Host> hosts_of(std::string_view text) {
  std::vector<Host> hosts;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const size_t colon = one.rfind(':');
    const auto slots = colon == std::string_view::npos ? std::nullopt : slots_in(one.substr(colon + 1));
    if (!slots) throw ConfigError(fmt::format("{}: \"{}\" is no list of hosts, as a:2,b:4", kHosts, one));
    hosts.push_back({std::string(one.substr(0, colon)), *slots});
  }
  return hosts;
}

}  // namespace weft
