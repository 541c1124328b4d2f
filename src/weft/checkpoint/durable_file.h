// Where durable_file.h was, until src/weft/apps/plan.cpp includes it from its new place.
#pragma once
#include "weft/base/durable_file.h"
