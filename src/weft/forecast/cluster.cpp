#include "weft/forecast/cluster.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "weft/base/error.h"
#include "weft/forecast/toml_values.h"
#include "weft/forecast/unequal_cluster.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

// A number of a table in units of `unit`.
void get_in(const TomlTable& table, const char* key, double unit, double& value, double low, double high) {
  double in_units = value / unit;
  table.get(key, in_units, low, high);
  value = in_units * unit;
}

void read_device(const TomlTable& table, DeviceSpec& d) {
  table.get("name", d.name);
  table.get("source", d.source);
  const double most = 1e6;
  get_in(table, "peak_bf16_tflops", kTera, d.peak.bits16, 1e-6, most);
  get_in(table, "peak_fp8_tflops", kTera, d.peak.fp8, 0, most);
  get_in(table, "peak_fp4_tflops", kTera, d.peak.fp4, 0, most);
  get_in(table, "peak_f32_tflops", kTera, d.peak.f32, 0, most);
  get_in(table, "products_bf16_tflops", kTera, d.products.bits16, 1e-6, most);
  get_in(table, "products_fp8_tflops", kTera, d.products.fp8, 0, most);
  get_in(table, "products_f32_tflops", kTera, d.products.f32, 0, most);
  get_in(table, "memory_gb", kGiga, d.memory_bytes, 1e-3, most);
  get_in(table, "memory_gb_s", kGiga, d.memory_bytes_per_s, 1e-3, most);
  table.get("units", d.units, 1, 1 << 20);
  table.get("generation", d.generation, 0, 100);
  table.get("watts", d.watts, 0, 1e6);
  table.refuse_others({"name", "source", "peak_bf16_tflops", "peak_fp8_tflops", "peak_fp4_tflops", "peak_f32_tflops",
                       "products_bf16_tflops", "products_fp8_tflops", "products_f32_tflops", "memory_gb", "memory_gb_s",
                       "units", "generation", "watts"});
}

void read_link(const TomlTable& table, LinkSpec& link) {
  get_in(table, "gb_s", kGiga, link.bytes_per_s, 1e-6, 1e6);
  get_in(table, "latency_us", 1e-6, link.latency_s, 0, 1e6);
  table.refuse_others({"gb_s", "latency_us"});
}

void read_program(const TomlTable& table, std::vector<std::pair<std::string, double>>& program) {
  std::vector<std::string> keys;
  for (const ProfileNumber& n : profile_numbers()) {
    keys.emplace_back(n.name);
    if (!table.has(n.name)) continue;
    double value = 0;
    table.get(n.name, value, n.low, n.high);
    program.emplace_back(n.name, value);
  }
  table.refuse_others(keys);
}

void check(const ClusterSpec& c, const std::string& source) {
  const DeviceSpec& d = c.device;
  const auto complain = [&](const std::string& what) { throw ConfigError(fmt::format("{}: {}", source, what)); };
  if (d.peak.bits16 <= 0)
    complain("device.peak_bf16_tflops is missing (or name a preset, as in preset = \"H100-SXM\")");
  if (d.products.bits16 > d.peak.bits16)
    complain(fmt::format("device.products_bf16_tflops = {:g} is above device.peak_bf16_tflops = {:g}",
                         d.products.bits16 / kTera, d.peak.bits16 / kTera));
  if (d.memory_bytes <= 0 || d.memory_bytes_per_s <= 0) complain("device.memory_gb or device.memory_gb_s is missing");
  if (c.scale_up.bytes_per_s <= 0) complain("scale_up.gb_s is missing");
  if (c.domain < c.devices_per_node || c.domain % c.devices_per_node != 0)
    complain(fmt::format("domain = {} must be a multiple of devices_per_node = {}: the devices that scale_up joins",
                         c.domain, c.devices_per_node));
  if (!c.measured.empty() && c.measured.back().ranks != c.devices_per_node)
    complain(fmt::format("devices_per_node = {}, but [[measured]] is of {} ranks at most: they must be equal",
                         c.devices_per_node, c.measured.back().ranks));
  if (c.num_devices > c.domain && c.scale_out.bytes_per_s <= 0) complain("scale_out.gb_s is missing");
  if (c.scale_out.bytes_per_s > c.scale_up.bytes_per_s)
    complain(fmt::format("scale_out.gb_s = {:g} is above scale_up.gb_s = {:g}: scale_up is the faster of the two",
                         c.scale_out.bytes_per_s / kGiga, c.scale_up.bytes_per_s / kGiga));
}

std::string price_toml(const ClusterSpec& c) {
  std::string text;
  if (c.price_per_device_hour > 0)
    text += fmt::format("per_device_hour = {:g}\nsource = {}\n", c.price_per_device_hour, toml_quoted(c.price_source));
  if (c.spot_price_per_device_hour > 0)
    text += fmt::format("spot_per_device_hour = {:g}\n", c.spot_price_per_device_hour);
  if (c.preemptions_per_device_hour > 0)
    text += fmt::format("preemptions_per_device_hour = {:g}\n", c.preemptions_per_device_hour);
  return text.empty() ? text : "\n[price]\n" + text;
}

// `c`: what holds where the table says nothing. What was measured, and numbers of the program, are a whole file's
// alone.
ClusterSpec cluster_in(const TomlTable& file, const std::string& source, ClusterSpec c) {
  std::string preset;
  file.get("preset", preset);
  if (!preset.empty()) c = preset_of(preset);
  const bool one_node = c.domain == c.devices_per_node;
  file.get("devices_per_node", c.devices_per_node, 1, 1 << 20);
  if (one_node) c.domain = c.devices_per_node;
  file.get("domain", c.domain, 1, 1 << 20);
  file.get("switched", c.switched);
  int nodes = 0;
  file.get("nodes", nodes, 1, 1 << 20);
  if (int64_t(nodes) * c.devices_per_node > kMostRanks)
    throw ConfigError(fmt::format("{}: nodes x devices_per_node must be at most {}", source, kMostRanks));
  c.num_devices = nodes * c.devices_per_node;
  read_device(file.table("device"), c.device);
  if (c.device.products.bits16 == 0) c.device.products.bits16 = 0.8 * c.device.peak.bits16;
  read_link(file.table("scale_up"), c.scale_up);
  read_link(file.table("scale_out"), c.scale_out);
  const TomlTable failures = file.table("failures");
  failures.get("per_device_hour", c.failures_per_device_hour, 0, 1);
  get_in(failures, "restart_minutes", 60, c.restart_s, 0, 1e5);
  get_in(failures, "disk_gb_s", kGiga, c.disk_bytes_per_s, 1e-6, 1e6);
  failures.refuse_others({"per_device_hour", "restart_minutes", "disk_gb_s"});
  const TomlTable price = file.table("price");
  price.get("per_device_hour", c.price_per_device_hour, 1e-9, 1e9);
  price.get("source", c.price_source);
  price.get("spot_per_device_hour", c.spot_price_per_device_hour, 1e-9, 1e9);
  price.get("preemptions_per_device_hour", c.preemptions_per_device_hour, 0, 1e3);
  price.refuse_others({"per_device_hour", "source", "spot_per_device_hour", "preemptions_per_device_hour"});
  return c;
}

ClusterSpec any_cluster() {
  ClusterSpec c;
  c.device.units = 1;
  return c;
}

}  // namespace

ClusterSpec parse_cluster(const std::string& toml, const std::string& source) {
  const TomlTable file(toml, source);
  if (file.has("others"))
    throw ConfigError(
        fmt::format("{}: [[others]] makes the devices unequal, on which `weft plan RECIPE --cluster FILE` alone "
                    "forecasts, also with --search (no --serve or --scale); what works: a file for each kind of node",
                    source));
  file.refuse_others({"preset", "nodes", "devices_per_node", "domain", "switched", "device", "scale_up", "scale_out",
                      "price", "failures", "measured", "program"});
  ClusterSpec c = cluster_in(file, source, any_cluster());
  c.measured = read_measured(file, source);
  read_program(file.table("program"), c.program);
  check(c, source);
  return c;
}

namespace {

// What must hold of one of several kinds of nodes, beside what holds of it alone.
void check_kind(const ClusterSpec& c, const ClusterSpec& first, const std::string& source) {
  const auto complain = [&](const std::string& what) { throw ConfigError(fmt::format("{}: {}", source, what)); };
  if (c.num_devices == 0) complain("nodes is missing: of each kind of node a file with [[others]] says how many");
  if (c.devices_per_node != first.devices_per_node || c.domain != first.domain)
    complain(fmt::format(
        "devices_per_node = {} and domain = {}, but those of the first kind are {} and {}: they must be "
        "equal; what works: devices_per_node = {} and domain = {} here, with as many nodes more",
        c.devices_per_node, c.domain, first.devices_per_node, first.domain, first.devices_per_node, first.domain));
  if (c.num_devices % c.domain != 0)
    complain(
        fmt::format("{} devices are no whole domains of {}, which have devices of one kind", c.num_devices, c.domain));
  if (c.scale_out.bytes_per_s <= 0)
    complain("scale_out.gb_s is missing, over which the kinds of nodes reach each other");
  if (c.failures_per_device_hour > 0 || c.spot_price_per_device_hour > 0 || c.preemptions_per_device_hour > 0)
    complain("[failures] and spot devices are forecast of devices of one kind alone; leave them out beside [[others]]");
}

}  // namespace

UnequalCluster parse_unequal_cluster(const std::string& toml, const std::string& source) {
  const TomlTable file(toml, source);
  std::vector<std::string> keys{"preset", "nodes",    "devices_per_node", "domain", "switched",
                                "device", "scale_up", "scale_out",        "price",  "failures"};
  const std::vector<TomlTable> others = file.tables("others");
  if (others.empty()) throw ConfigError(fmt::format("{}: [[others]] is missing", source));
  for (const char* alone : {"measured", "program"})
    if (file.has(alone))
      throw ConfigError(fmt::format("{}: {} is of devices of one kind, and this file has [[others]]", source, alone));
  for (const TomlTable& other : others) other.refuse_others(keys);
  keys.emplace_back("others");
  file.refuse_others(keys);
  UnequalCluster all;
  all.kinds.push_back(cluster_in(file, source, any_cluster()));
  check(all.kinds[0], source);
  check_kind(all.kinds[0], all.kinds[0], source);
  for (const TomlTable& other : others) {
    ClusterSpec like_first = all.kinds[0];
    like_first.num_devices = 0;
    all.kinds.push_back(cluster_in(other, other.place(), std::move(like_first)));
    check(all.kinds.back(), other.place());
    check_kind(all.kinds.back(), all.kinds[0], other.place());
  }
  if (all.num_devices() > kMostRanks)
    throw ConfigError(fmt::format("{}: {} devices, more than {}", source, all.num_devices(), kMostRanks));
  return all;
}

int64_t UnequalCluster::num_devices() const {
  int64_t sum = 0;
  for (const ClusterSpec& kind : kinds) sum += kind.num_devices;
  return sum;
}

size_t UnequalCluster::kind_of(int64_t device) const {
  WEFT_CHECK(device >= 0 && device < num_devices(), "a device that is not there");
  size_t kind = 0;
  for (; device >= kinds[kind].num_devices; ++kind) device -= kinds[kind].num_devices;
  return kind;
}

const MeasuredRanks* measured_of(const ClusterSpec& cluster, int64_t ranks) {
  if (cluster.measured.empty()) return nullptr;
  const int64_t here = std::min<int64_t>(ranks, cluster.devices_per_node);
  for (const MeasuredRanks& m : cluster.measured)
    if (m.ranks >= here) return &m;
  throw ConfigError(fmt::format("a layout has {} ranks on a node, and the cluster was measured with {} at most", here,
                                cluster.measured.back().ranks));
}

ProgramProfile program_on(const ClusterSpec& cluster, const ProgramProfile& base) {
  ProgramProfile p = base;
  if (!cluster.measured.empty()) {
    p = {.name = base.name, .frameworks = base.frameworks, .experts = base.experts};
    p.products = p.products8 = p.products4 = p.grouped = p.attention = p.attention_backward = 1;
    p.memory = p.update = p.network = 1;
    p.tp_exposed = p.ep_exposed = p.ep_inside = p.cp_exposed = p.pp_exposed = 1;
    p.casts = p.gather_hidden = p.reduce_hidden = p.slowdown = p.hop_us = p.launch_us = p.gap_us = 0;
  }
  for (const auto& [name, value] : cluster.program)
    for (const ProfileNumber& n : profile_numbers())
      if (name == n.name) p.*n.value = value;
  return p;
}

namespace {

std::string text_of(const std::string& path) {
  constexpr uintmax_t kMostBytes = 1 << 20;
  // Before it is opened: a pipe would wait, a device may never end.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw FileError(fmt::format("{}: cannot be read", path));
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMostBytes)
    throw FileError(fmt::format("{}: has {} bytes, more than the {} of a cluster's file", path, bytes, kMostBytes));
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (error || !file) throw FileError(fmt::format("{}: cannot be read", path));
  return text.str();
}

}  // namespace

ClusterSpec read_cluster(const std::string& name_or_file) {
  const bool is_file = std::filesystem::is_regular_file(name_or_file);
  if (!is_file && name_or_file.find(".toml") == std::string::npos) return preset_of(name_or_file);
  return parse_cluster(text_of(name_or_file), name_or_file);
}

bool is_unequal(const std::string& name_or_file) {
  if (!std::filesystem::is_regular_file(name_or_file)) return false;
  try {
    return TomlTable(text_of(name_or_file), name_or_file).has("others");
  } catch (const Error&) { return false; }  // read_cluster says why
}

UnequalCluster read_unequal_cluster(const std::string& file) { return parse_unequal_cluster(text_of(file), file); }

std::string to_toml(const ClusterSpec& c) {
  const DeviceSpec& d = c.device;
  std::string text;
  if (c.num_devices > 0) text += fmt::format("nodes = {}\n", c.num_devices / c.devices_per_node);
  text += fmt::format("devices_per_node = {}\ndomain = {}\nswitched = {}\n\n[device]\nname = {}\n", c.devices_per_node,
                      c.domain, c.switched, toml_quoted(d.name));
  if (!d.source.empty()) text += fmt::format("source = {}\n", toml_quoted(d.source));
  const std::pair<const char*, double> numbers[] = {{"peak_bf16_tflops", d.peak.bits16 / kTera},
                                                    {"peak_fp8_tflops", d.peak.fp8 / kTera},
                                                    {"peak_fp4_tflops", d.peak.fp4 / kTera},
                                                    {"peak_f32_tflops", d.peak.f32 / kTera},
                                                    {"products_bf16_tflops", d.products.bits16 / kTera},
                                                    {"products_fp8_tflops", d.products.fp8 / kTera},
                                                    {"products_f32_tflops", d.products.f32 / kTera},
                                                    {"memory_gb", d.memory_bytes / kGiga},
                                                    {"memory_gb_s", d.memory_bytes_per_s / kGiga},
                                                    {"watts", d.watts}};
  for (const auto& [key, value] : numbers)
    if (value > 0) text += fmt::format("{} = {:g}\n", key, value);
  text += fmt::format("units = {}\ngeneration = {}\n", d.units, d.generation);
  const auto link = [&](const char* name, const LinkSpec& l) {
    if (l.bytes_per_s > 0)
      text += fmt::format("\n[{}]\ngb_s = {:g}\nlatency_us = {:g}\n", name, l.bytes_per_s / kGiga, l.latency_s * 1e6);
  };
  link("scale_up", c.scale_up);
  link("scale_out", c.scale_out);
  if (c.failures_per_device_hour > 0)
    text += fmt::format("\n[failures]\nper_device_hour = {:g}\nrestart_minutes = {:g}\ndisk_gb_s = {:g}\n",
                        c.failures_per_device_hour, c.restart_s / 60, c.disk_bytes_per_s / kGiga);
  text += price_toml(c);
  if (!c.program.empty()) text += "\n[program]\n";
  for (const auto& [name, value] : c.program) text += fmt::format("{} = {:.6g}\n", name, value);
  for (const MeasuredRanks& m : c.measured) text += to_toml(m);
  return text;
}

}  // namespace weft
