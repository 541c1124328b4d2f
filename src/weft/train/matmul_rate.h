// The rate of large matrix products, which MFU is a fraction of; measured too low if other work ran meanwhile.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace weft {

// For one rank, by one thread.
class MatmulRate {
 public:
  MatmulRate() = default;  // of nothing: MFU is 0
  // `measure` gives flop/s, 0 where they mean nothing; it is called now, and where `may_repeat` again, as below.
  MatmulRate(std::function<double()> measure, bool may_repeat);

  // The MFU of a step of so many flop. Above 1 only the rate can be wrong, as a step is no faster than large products:
  // it is then measured again, the first, tenth, hundredth ... time, and the best counts from then on.
  double mfu(double flops, double seconds);
  // Call at the end of a run that took `run_s`: measures once more if that costs next to nothing.
  void check_at_end(double run_s);
  // A note about the rate since the last call; mostly empty.
  std::string take_note() { return std::exchange(note_, {}); }
  double flops_per_s() const { return rate_; }

 private:
  bool measure_again();  // is it better

  std::function<double()> measure_;
  bool may_repeat_ = false;
  double rate_ = 0;
  int64_t num_above_ = 0, next_above_ = 1;  // steps of an MFU above 1; the one at which the rate is measured again
  std::string note_;
};

// "50.0 GFLOP/s"
std::string flops_text(double flops_per_s);
// Why an MFU is above 1.
inline constexpr const char* kWhyAboveOne =
    "a step cannot be faster than large products are: other work ran while those were measured";

}  // namespace weft
