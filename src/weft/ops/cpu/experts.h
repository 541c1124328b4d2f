// Kernels of routers, and of rows that are dealt to experts.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void route(const Route& op, Range tokens);
void route_backward(const RouteBackward& op, Range tokens);
void router_sums(const RouterSums& op, Range tokens, double* part);  // part: as many as op.sums, written
void expert_load(const ExpertLoad& op);
void group_rows(const GroupRows& op);
void gather_rows(const GatherRows& op, Range rows);
void sum_rows(const SumRows& op, Range rows);
void scale_rows(const ScaleRows& op, Range rows);
void scale_rows_backward(const ScaleRowsBackward& op, Range rows);

}  // namespace weft::cpu
