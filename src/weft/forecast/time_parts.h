// Where a step's time goes, by name.
#pragma once
#include <string>
#include <vector>

#include "weft/forecast/price.h"

namespace weft {

struct TimePart {
  std::string name;  // "products", "exposed tp", "bubble"
  double seconds;
};
// They add up to the step; the longest first, none of no time.
std::vector<TimePart> time_parts_of(const StepForecast& step);
// "where the step goes", a line each.
std::string time_parts_text(const StepForecast& step);

}  // namespace weft
