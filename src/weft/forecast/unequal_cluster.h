// A cluster whose nodes have devices of several kinds. docs/formats/cluster.md, [[others]]
#pragma once
#include <string>
#include <vector>

#include "weft/forecast/device.h"

namespace weft {

// All nodes have as many devices, and domains are as large. What a file says of the first kind stands outside of
// [[others]].
struct UnequalCluster {
  std::vector<ClusterSpec> kinds;  // in the order of their nodes; each with its own num_devices
  int64_t num_devices() const;
  // The kind of a device; rank 0 is on the first, and so on.
  size_t kind_of(int64_t device) const;
  int domain() const { return kinds[0].domain; }
};

// Whether this is a file with [[others]]; false for presets and for what cannot be read.
bool is_unequal(const std::string& name_or_file);
// Throws ConfigError (FileError where the file cannot be read) that says file, line, key and what would be right.
UnequalCluster read_unequal_cluster(const std::string& file);
UnequalCluster parse_unequal_cluster(const std::string& toml, const std::string& source);

}  // namespace weft
