// What operands an op may have: that they exist, their shapes, strides and dtypes (else CheckFailure: a bug in a
// layer), and how the ranks may hold them (else PlacementError). One function for each op; the dry run calls them all,
// so kernels themselves check nothing. Messages name op, field, and every operand.
//
// Placements are judged one axis at a time, which is sound because every op is linear in whatever operand is cut.
// Index tensors (ids, positions, targets, weights of targets, tokens) and constants may be unplaced: host data, whole
// everywhere.
#pragma once
#include "weft/ops/ops.h"

namespace weft::rules {

void check(const Matmul& op);
void check(const BiasGrad& op);
void check(const Embed& op);
void check(const EmbedBackward& op);
void check(const Norm& op);
void check(const NormApply& op);
void check(const NormBackward& op);
void check(const HeadNorm& op);
void check(const HeadNormBackward& op);
void check(const RowDots& op);
void check(const Rope& op);
void check(const LatentKeys& op);
void check(const LatentKeysBackward& op);
void check(const Attention& op);
void check(const AttentionBackward& op);
void check(const AttentionMerge& op);
void check(const AttentionSink& op);
void check(const AttentionSinkBackward& op);
void check(const GatedUnit& op);
void check(const GatedUnitBackward& op);
void check(const Gelu& op);
void check(const GeluBackward& op);
void check(const SoftCap& op);
void check(const SoftCapBackward& op);
void check(const Dropout& op);
void check(const CrossEntropy& op);
void check(const CrossEntropyPart& op);
void check(const CrossEntropyJoin& op);
void check(const DistillPart& op);
void check(const DistillJoin& op);
void check(const DistillTopPart& op);
void check(const DistillTopJoin& op);
void check(const Add& op);
void check(const Axpby& op);
void check(const AddRow& op);
void check(const ScaleColumns& op);
void check(const Copy& op);
void check(const Zero& op);
void check(const Ones& op);
void check(const Sum& op);
void check(const SumSquares& op);
void check(const CountNonfinite& op);
void check(const AdamW& op);
void check(const AdamW8Max& op);
void check(const AdamW8& op);
void check(const MaxRows& op);
void check(const Sgd& op);
void check(const Dequantise& op);
void check(const Route& op);
void check(const RouteBackward& op);
void check(const RouterSums& op);
void check(const ExpertLoad& op);
void check(const GroupRows& op);
void check(const GatherRows& op);
void check(const SumRows& op);
void check(const ScaleRows& op);
void check(const ScaleRowsBackward& op);
void check(const GroupedMatmul& op);
void check(const GroupedWeightGrad& op);

}  // namespace weft::rules
