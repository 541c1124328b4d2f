// What /proc and /sys say of the machine now: cores, memory, energy, temperatures, disks, network.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace weft {

// Looked at when it is asked, at most once in kLookEachS; rates are means since the look before. Not thread-safe.
class MachineLook {
 public:
  static constexpr double kLookEachS = 1;
  // `root` stands for "/", which tests replace.
  explicit MachineLook(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // The object of /api/machine (docs/formats/page.md), but for `disks`. now_s: of a steady clock.
  const nlohmann::ordered_json& look(double now_s);
  MachineLook(const MachineLook&) = delete;
  MachineLook& operator=(const MachineLook&) = delete;
  ~MachineLook();

 private:
  // What has grown by how much since the look before, a second; null at the first.
  nlohmann::ordered_json rate(const std::string& name, double value, double wraps_at = 0);
  void add_cores(nlohmann::ordered_json& out);
  void add_memory(nlohmann::ordered_json& out);
  void add_energy(nlohmann::ordered_json& out);
  void add_temperatures(nlohmann::ordered_json& out);
  void add_clocks(nlohmann::ordered_json& out);
  void add_devices(nlohmann::ordered_json& out);
  void add_network(nlohmann::ordered_json& out);
  void add_pressure(nlohmann::ordered_json& out);

  std::filesystem::path root_;
  double looked_s_ = 0, since_s_ = 0;  // of the last look; seconds since the one before
  std::map<std::string, double> before_, now_;
  std::unique_ptr<nlohmann::ordered_json> last_;
};

// The file system of a folder: {"path", "total_bytes", "free_bytes"}.
nlohmann::ordered_json disk_of(const std::filesystem::path& folder);

}  // namespace weft
