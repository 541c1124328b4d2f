// The state of runs as Prometheus reads it: the text format 0.0.4, names and units by its conventions
// (docs/live.md, "Prometheus and Grafana").
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/page/run_view.h"

namespace weft {

// "weft_loss_nats", what it is, and its type ("gauge", "counter").
struct MetricFamily {
  const char *name, *help, *type;
};
// All that there are, in the order in which they are told.
const std::vector<MetricFamily>& metric_families();

// Of all runs. A number that is not known is left out; one that was recorded and is not finite is NaN.
std::string prometheus_text(const std::vector<const RunView*>& runs, double now_s);

// With U+FFFD in place of bytes that are no UTF-8.
std::string whole_utf8(std::string_view text);
// The value of a label, in quotes, as the format wants it; bytes that are no UTF-8 become U+FFFD.
std::string label_value(std::string_view text);

}  // namespace weft
