#include "weft/ops/polled.h"

namespace weft {

Polled::Polled(Backend& inner, Call lend, Call poll)
    : BackendAround(inner), lend_(std::move(lend)), poll_(std::move(poll)) {}

void Polled::run(const AnyOp& op) {
  const bool lends = lend_ && !is_holding();
  if (lends) lend_();
  try {
    inner_.run(op);
  } catch (...) {
    end_failed();
    throw;
  }
  // Polling may take long, so not while the device is idle; but it must take back what was lent.
  if (lends || !is_holding()) poll_();
}

bool Polled::is_holding() {
  const IssuedOps* const issued = inner_.issued();
  return issued != nullptr && issued->is_holding();
}

// Rethrow the op's error; drop the poll's.
void Polled::end_failed() const {
  try {
    poll_();
  } catch (const std::exception&) {}
}

}  // namespace weft
