#include "weft/page/machine_look.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "weft/base/host_name.h"
#include "weft/base/threads.h"
#include "weft/page/followed_file.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kMostEntries = 64;  // of one list
constexpr size_t kMostFileBytes = 64 << 10;

// The beginning of a file of /proc or /sys; empty where it cannot be read. Their sizes are not known before.
std::string text_of(const fs::path& file) {
  std::string problem;
  const Descriptor fd = open_plain(file, problem);
  std::string text(fd < 0 ? 0 : kMostFileBytes, '\0');
  size_t done = 0;
  for (ssize_t n; done < text.size() && (n = ::read(fd, text.data() + done, text.size() - done)) > 0;)
    done += size_t(n);
  text.resize(done);
  return text;
}
std::string first_line_of(const fs::path& file) {
  const std::string text = text_of(file);
  return text.substr(0, text.find('\n'));
}
std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}
std::optional<double> number_in(const fs::path& file) { return number_of(first_line_of(file)); }

// What is in a folder of /sys, by name.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end && all.size() < kMostEntries;
       at.increment(error))
    all.push_back(at->path());
  std::sort(all.begin(), all.end());
  return all;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

MachineLook::~MachineLook() = default;

const Json& MachineLook::look(double now_s) {
  if (last_ && now_s - looked_s_ < kLookEachS) return *last_;
  since_s_ = last_ ? now_s - looked_s_ : 0;
  looked_s_ = now_s;
  before_ = std::exchange(now_, {});
  Json out{{"host", name_of_host()}, {"now", wall_time_s()}};
  add_cores(out);
  add_memory(out);
  add_energy(out);
  add_temperatures(out);
  add_clocks(out);
  add_devices(out);
  add_network(out);
  add_pressure(out);
  last_ = std::make_unique<Json>(std::move(out));
  return *last_;
}

Json MachineLook::rate(const std::string& name, double value, double wraps_at) {
  now_[name] = value;
  const auto before = before_.find(name);
  if (before == before_.end() || since_s_ <= 0) return nullptr;
  double grown = value - before->second;
  if (grown < 0) grown += wraps_at;
  return grown < 0 ? Json() : Json(grown / since_s_);
}

void MachineLook::add_cores(Json& out) {
  std::istringstream stat(text_of(root_ / "proc/stat"));
  int64_t cores = 0;
  out["busy"] = nullptr;
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    if (line[3] != ' ') {
      ++cores;
      continue;
    }
    std::istringstream fields(line.substr(4));
    double all = 0, idle = 0, ticks = 0;
    for (int i = 0; i < 8 && fields >> ticks; ++i) {
      all += ticks;
      if (i == 3 || i == 4) idle += ticks;  // idle, waiting for disks
    }
    const Json all_rate = rate("cpu all", all), idle_rate = rate("cpu idle", idle);
    if (all_rate.is_number() && idle_rate.is_number() && all_rate.get<double>() > 0)
      out["busy"] = std::clamp(1 - idle_rate.get<double>() / all_rate.get<double>(), 0.0, 1.0);
  }
  out["cores"] = cores;
  out["usable_cores"] = usable_cores();
  out["load"] = Json::array();
  std::istringstream load(text_of(root_ / "proc/loadavg"));
  double value = 0;
  for (int i = 0; i < 3 && load >> value; ++i) out["load"].push_back(value);
}

void MachineLook::add_memory(Json& out) {
  std::map<std::string, double> kib;
  std::istringstream lines(text_of(root_ / "proc/meminfo"));
  for (std::string name; lines >> name;) {
    std::string rest;
    std::getline(lines, rest);
    if (const auto value = number_of(rest.substr(std::min(rest.size(), rest.find_first_not_of(' ')))))
      kib[name] = *value;
  }
  const auto bytes = [&](const char* name) { return kib.count(name) > 0 ? Json(int64_t(kib[name] * 1024)) : Json(); };
  out["memory"] = {{"total_bytes", bytes("MemTotal:")}, {"available_bytes", bytes("MemAvailable:")}};
  out["memory"]["swap_used_bytes"] =
      kib.count("SwapTotal:") > 0 ? Json(int64_t((kib["SwapTotal:"] - kib["SwapFree:"]) * 1024)) : Json();
}

void MachineLook::add_energy(Json& out) {
  out["energy"] = Json::array();
  for (const fs::path& zone : entries_of(root_ / "sys/class/powercap")) {
    const auto micro_joules = number_in(zone / "energy_uj");
    const std::string name = first_line_of(zone / "name");
    if (!micro_joules || name.empty()) continue;
    const Json micro_watts =
        rate("energy " + zone.string(), *micro_joules, number_in(zone / "max_energy_range_uj").value_or(0));
    out["energy"].push_back(
        {{"name", name}, {"watts", micro_watts.is_number() ? Json(micro_watts.get<double>() / 1e6) : Json()}});
  }
}

void MachineLook::add_temperatures(Json& out) {
  out["temperatures"] = Json::array();
  for (const fs::path& chip : entries_of(root_ / "sys/class/hwmon")) {
    const std::string name = first_line_of(chip / "name");
    for (const fs::path& file : entries_of(chip)) {
      const std::string file_name = file.filename().string();
      if (!file_name.starts_with("temp") || !file_name.ends_with("_input")) continue;
      const auto milli = number_in(file);
      if (!milli || out["temperatures"].size() >= kMostEntries) continue;
      const std::string sensor = file_name.substr(0, file_name.size() - 6);
      const std::string label = first_line_of(chip / (sensor + "_label"));
      out["temperatures"].push_back(
          {{"name", name + " " + (label.empty() ? sensor : label)}, {"celsius", *milli / 1000}});
    }
  }
}

void MachineLook::add_clocks(Json& out) {
  double sum = 0, most = 0;
  int64_t count = 0;
  for (int core = 0; core < int(kMostEntries); ++core) {
    const fs::path folder = root_ / "sys/devices/system/cpu" / ("cpu" + std::to_string(core)) / "cpufreq";
    const auto khz = number_in(folder / "scaling_cur_freq");
    if (!khz) break;
    sum += *khz;
    ++count;
    most = std::max(most, number_in(folder / "cpuinfo_max_freq").value_or(0));
  }
  out["clocks"] = {{"mhz", count > 0 ? Json(sum / double(count) / 1000) : Json()},
                   {"max_mhz", most > 0 ? Json(most / 1000) : Json()}};
}

void MachineLook::add_devices(Json& out) {
  constexpr double kSectorBytes = 512;  // of /sys/block/*/stat, whatever the disk has
  out["devices"] = Json::array();
  for (const fs::path& device : entries_of(root_ / "sys/block")) {
    const std::string name = device.filename().string();
    if (name.starts_with("loop") || name.starts_with("ram")) continue;
    std::istringstream fields(text_of(device / "stat"));
    double value = 0, read = 0, written = 0;
    int i = 0;
    for (; i < 7 && fields >> value; ++i) {
      if (i == 2) read = value * kSectorBytes;
      if (i == 6) written = value * kSectorBytes;
    }
    if (i < 7) continue;
    out["devices"].push_back({{"name", name},
                              {"read_bytes_per_s", rate("read " + name, read)},
                              {"written_bytes_per_s", rate("written " + name, written)}});
  }
}

void MachineLook::add_network(Json& out) {
  out["network"] = Json::array();
  for (const fs::path& link : entries_of(root_ / "sys/class/net")) {
    const std::string name = link.filename().string();
    const fs::path counts = link / "statistics";
    const auto received = number_in(counts / "rx_bytes"), sent = number_in(counts / "tx_bytes");
    if (!received || !sent) continue;
    const auto sum = [&](const char* a, const char* b) {
      const auto one = number_in(counts / a), other = number_in(counts / b);
      return one && other ? Json(int64_t(*one + *other)) : Json();
    };
    out["network"].push_back({{"name", name},
                              {"received_bytes_per_s", rate("received " + name, *received)},
                              {"sent_bytes_per_s", rate("sent " + name, *sent)},
                              {"errors", sum("rx_errors", "tx_errors")},
                              {"dropped", sum("rx_dropped", "tx_dropped")}});
  }
}

void MachineLook::add_pressure(Json& out) {
  out["pressure"] = Json::array();
  for (const char* what : {"cpu", "io", "memory"}) {
    const std::string line = first_line_of(root_ / "proc/pressure" / what);  // "some avg10=0.00 avg60=..."
    const size_t at = line.find("avg10=");
    if (at == std::string::npos) continue;
    out["pressure"].push_back({{"name", what}, {"some_10s", json_of(number_of(line.substr(at + 6)))}});
  }
}

Json disk_of(const fs::path& folder) {
  struct statvfs s = {};
  const bool known = ::statvfs(folder.c_str(), &s) == 0;
  return {{"path", folder.string()},
          {"total_bytes", known ? Json(int64_t(s.f_blocks) * int64_t(s.f_frsize)) : Json()},
          {"free_bytes", known ? Json(int64_t(s.f_bavail) * int64_t(s.f_frsize)) : Json()}};
}

}  // namespace weft
