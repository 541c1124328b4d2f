// Kernels on elements, vectorised; a range of the op's elements, counted by rows, at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void gated_unit(const GatedUnit& op, Range elements);                   // of a
void gated_unit_backward(const GatedUnitBackward& op, Range elements);  // of da
void soft_cap(const SoftCap& op, Range elements);
void soft_cap_backward(const SoftCapBackward& op, Range elements);
void gelu(const Gelu& op, Range elements);
void gelu_backward(const GeluBackward& op, Range elements);
void add(const Add& op, Range elements);
void axpby(const Axpby& op, Range elements);
void add_row(const AddRow& op, Range rows);
void scale_columns(const ScaleColumns& op, Range rows);
void attention_merge(const AttentionMerge& op, Range rows);
void copy(const Copy& op, Range elements);
void embed(const Embed& op, Range rows);
void embed_backward(const EmbedBackward& op, Range columns);

}  // namespace weft::cpu
