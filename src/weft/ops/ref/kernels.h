// Every op as plain loops: ref::run<T>(op, threads). Results do not depend on the number of threads.
// On double this is the reference backend. On std::complex<double> a test differentiates it (tests/ops/complex_step.h),
// so kernels compare only real parts.
#pragma once
#include "weft/ops/ref/attention.h"
#include "weft/ops/ref/distill_top.h"
#include "weft/ops/ref/experts.h"
#include "weft/ops/ref/matrix.h"
#include "weft/ops/ref/norm.h"
#include "weft/ops/ref/pointwise.h"
#include "weft/ops/ref/update.h"
