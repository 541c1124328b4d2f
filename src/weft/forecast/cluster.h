// A cluster that nobody need have: a preset, or a file that says what differs from one. docs/formats/cluster.md
#pragma once
#include <string>

#include "weft/forecast/device.h"
#include "weft/forecast/profile.h"

namespace weft {

// Takes the name of a preset ("H100-SXM"), or a TOML file. Throws ConfigError (FileError where the file cannot be read)
// that says file, line, key and what would be right.
ClusterSpec read_cluster(const std::string& name_or_file);
ClusterSpec parse_cluster(const std::string& toml, const std::string& source);
// As such a file, whole.
std::string to_toml(const ClusterSpec& cluster);

// weft there: `base`, or where the cluster was measured a program that takes what was measured and hides nothing; with
// the cluster's own numbers.
ProgramProfile program_on(const ClusterSpec& cluster, const ProgramProfile& base);

}  // namespace weft
