#include "weft/ops/cuda/launcher.cuh"
#include "weft/ops/cuda/run_kernels.h"
namespace weft::gpu {
template <class Op> void go(StreamLauncher& l, const Op& op) { run(l, op); }
template void go(StreamLauncher&, const Norm&);
template void go(StreamLauncher&, const Attention&);
template void go(StreamLauncher&, const AttentionBackward&);
template void go(StreamLauncher&, const CrossEntropy&);
template void go(StreamLauncher&, const Matmul&);
template void go(StreamLauncher&, const Copy&);
template void go(StreamLauncher&, const Swiglu&);
template void go(StreamLauncher&, const SwigluBackward&);
template void go(StreamLauncher&, const NormBackward&);
template void go(StreamLauncher&, const HeadNorm&);
template void go(StreamLauncher&, const EmbedBackward&);
template void go(StreamLauncher&, const AdamW&);
template void go(StreamLauncher&, const Sgd&);
template void go(StreamLauncher&, const SumSquares&);
template void go(StreamLauncher&, const CountNonfinite&);
template void go(StreamLauncher&, const Sum&);
template void go(StreamLauncher&, const Dropout&);
template void go(StreamLauncher&, const Rope&);
template void go(StreamLauncher&, const CrossEntropyJoin&);
template void go(StreamLauncher&, const CrossEntropyPart&);
}
