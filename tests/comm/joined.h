// Meshes whose tensors go by a fabric of threads.
#pragma once
#include "comm/host_fabric.h"
#include "weft/comm/fabric_mesh.h"

namespace weft::testing {

inline bool everything(const void*) { return true; }
inline bool nothing(const void*) { return false; }

inline FabricMesh joined(const ProcessMesh& host, HostWires& wires, const HostFabric::Holds& holds = everything,
                         double timeout_s = 20, double told_s = 2) {
  const auto fabric = std::make_shared<HostFabric>(wires, fmt::format("device {}", host.world->rank()), holds);
  return over_fabric(host, {.fabric = fabric, .timeout_s = timeout_s, .told_s = told_s});
}

}  // namespace weft::testing
