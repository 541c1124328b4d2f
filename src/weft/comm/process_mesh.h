// The ranks as a grid with named axes.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>

#include "weft/comm/communicator.h"

namespace weft {

// One communicator for each axis of placements, and one for the pipeline. Shared: a mesh is a value that names them.
struct ProcessMesh {
  std::array<std::shared_ptr<Communicator>, kAxes> axes;
  std::shared_ptr<Communicator> pp, world;
  Communicator& operator[](Axis axis) const { return *axes[size_t(axis)]; }
};

// The sizes of a layout; `ep` cuts experts over ranks of dp x cp.
struct MeshSizes {
  int dp = 1, pp = 1, cp = 1, tp = 1, ep = 1;
  int edp() const { return dp * cp / ep; }
  int world() const { return dp * pp * cp * tp; }
};

// One axis as one rank sees it: the ranks that differ in nothing else share the name.
struct MeshGroup {
  std::string name;
  int size, rank;
};
// The mesh of world rank `rank`, whose communicators `join` makes. Ranks lie tp innermost, then cp, dp, pp outermost;
// of the data ranks (dp x cp), ep is inner and edp outer.
ProcessMesh make_mesh(const MeshSizes& sizes, int rank,
                      const std::function<std::shared_ptr<Communicator>(const MeshGroup&)>& join);
// Every axis of size one.
ProcessMesh single_mesh();
// For a dry run as rank 0 of a mesh of these sizes: collectives move nothing.
ProcessMesh dry_mesh(const MeshSizes& sizes);

}  // namespace weft
