// What backends around a backend share.
#pragma once
#include "weft/ops/backend.h"
#include "weft/ops/region_path.h"

namespace weft {

// Passes on to `inner_`, which is borrowed, all but the ops. Knows the region that they are in.
class BackendAround : public Backend {
 public:
  explicit BackendAround(Backend& inner) : inner_(inner) {}
  void enter(std::string_view region) override {
    path_.enter(region);
    inner_.enter(region);
  }
  void leave() override {
    path_.leave();
    inner_.leave();
  }
  void wait_all() override { inner_.wait_all(); }
  IssuedOps* issued() override { return inner_.issued(); }

 protected:
  Backend& inner_;
  RegionPath path_;
};

}  // namespace weft
