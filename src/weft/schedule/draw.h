// A simulated step as a picture: a row for each rank, time to the right, what is left empty is bubble. Pure functions.
#pragma once
#include <string>

#include "weft/schedule/simulate.h"

namespace weft {

// "zbv, 4 stages of 2 chunks, 8 micro-batches: 51 long, bubble 5.9 %"
std::string headline(const Pipeline& pipeline, const Timeline& timeline);

// For a terminal of so many columns (at least 20); time goes on below where they do not suffice. ASCII.
std::string draw_text(const Pipeline& pipeline, const Timeline& timeline, int columns);

// A whole SVG file, for light and dark ground. `unit` stands at the time axis: plain text without markup.
std::string draw_svg(const Pipeline& pipeline, const Timeline& timeline, const std::string& unit);

// Micro-batches in the step.
int64_t num_micro_batches(const Timeline& timeline);
// The shortest time of an action that takes any; 0 if none does.
double shortest_action(const Timeline& timeline);

}  // namespace weft
