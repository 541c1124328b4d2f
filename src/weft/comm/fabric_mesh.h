// A mesh whose tensors go from GPU to GPU.
#pragma once
#include <memory>
#include <string>

#include "weft/comm/process_mesh.h"
#include "weft/device/fabric.h"

namespace weft {

struct FabricOfRank {
  std::shared_ptr<Fabric> fabric;  // none: this rank cannot
  std::string why_none = {};
  double timeout_s = 600;  // for the device, once all ranks of a call have begun it
  double told_s = 2;       // after a device failed: for the message of a peer that gave up
};
struct FabricMesh {
  ProcessMesh mesh;
  std::string note;  // what goes by which way, and why; equal on all ranks except for their device's memory
};

// Collective: every rank of the mesh calls it. The fabric carries collectives of tensors in device memory on every axis
// but the pipeline's, and messages between pipeline neighbours (first and last are neighbours too). The rest goes by
// `host`, whose meshes must outlive the result; so does everything if a rank has no fabric, fabrics differ, or two
// ranks share a device. Throws CommError.
FabricMesh over_fabric(const ProcessMesh& host, const FabricOfRank& mine);

}  // namespace weft
