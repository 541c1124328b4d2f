// How deep rendering is nested: macros in loops in macros, and their expressions.
#pragma once
#include "weft/chat/renderer.h"

namespace weft::chat {

// One level deeper while it lives. Throws Error if that is too deep.
class Renderer::Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) {
    if (depth_ + 1 > kDeepestRendering) fail("nested too deep: do macros call each other without end?");
    ++depth_;
  }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  static constexpr int kDeepestRendering = 1000;
  int& depth_;
};

}  // namespace weft::chat
