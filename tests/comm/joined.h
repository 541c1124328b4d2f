// Meshes whose tensors go by a fabric of threads.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "comm/host_fabric.h"
#include "support.h"
#include "weft/comm/fabric_mesh.h"

namespace weft::testing {

inline bool everything(const void*) { return true; }
inline bool nothing(const void*) { return false; }

inline FabricMesh joined(const ProcessMesh& host, HostWires& wires, const HostFabric::Holds& holds = everything,
                         double timeout_s = 20, double told_s = 2) {
  const auto fabric = std::make_shared<HostFabric>(wires, fmt::format("device {}", host.world->rank()), holds);
  return over_fabric(host, {.fabric = fabric, .timeout_s = timeout_s, .told_s = told_s});
}

// The message of what `f` throws; empty if it throws nothing. Either takes less than 15 s: no rank waits for one that
// has failed.
template <class F>
std::string prompt_error_of(F f) {
  const auto began = std::chrono::steady_clock::now();
  std::string text = error_of(std::move(f));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
  return text;
}

}  // namespace weft::testing
