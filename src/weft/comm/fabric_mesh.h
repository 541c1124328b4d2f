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
  double timeout_s = 600;  // of waiting for the device, when all ranks of a call have begun it
  double told_s = 2;       // where a device has failed: of waiting for the words of a peer that has given up
};
struct FabricMesh {
  ProcessMesh mesh;
  std::string note;  // what goes how, and why: the same on every rank but for the memory of its device
};

// Collective: every rank of the mesh calls it. By the fabric go collectives of tensors in the device's memory among the
// ranks of each axis but the pipeline's, and messages between neighbours in the pipeline, first and last among them;
// the rest by `host`, whose meshes must outlive the result. Everything goes by `host` where a rank has no fabric, where
// their fabrics differ, or where two ranks share a device. Throws CommError.
FabricMesh over_fabric(const ProcessMesh& host, const FabricOfRank& mine);

}  // namespace weft
