// Kernels on elements, vectorised; a range of the op's elements, counted by rows, at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void swiglu(const Swiglu& op, Range elements);                   // of a
void swiglu_backward(const SwigluBackward& op, Range elements);  // of da
void gelu(const Gelu& op, Range elements);
void gelu_backward(const GeluBackward& op, Range elements);
void add(const Add& op, Range elements);
void axpby(const Axpby& op, Range elements);
void add_row(const AddRow& op, Range rows);
void attention_merge(const AttentionMerge& op, Range rows);
void copy(const Copy& op, Range elements);
void embed(const Embed& op, Range rows);
void embed_backward(const EmbedBackward& op, Range columns);

}  // namespace weft::cpu
