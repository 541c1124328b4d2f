// The fastest of a library's ways to compute a product that gives the bits of the library's own choice. Plain C++.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace weft {

// An algorithm of the library, as it takes it.
struct ProductWay {
  std::array<uint64_t, 8> algorithm = {};
  int64_t workspace_bytes = 0;
  bool operator==(const ProductWay&) const = default;
};

// One product on the data of one call, computed beside its output, which stays as it is.
class ProductTrial {
 public:
  virtual ~ProductTrial() = default;
  // All ways that may be taken, including the first choice, best first by the library's estimate. Empty if it fails.
  virtual std::vector<ProductWay> ways() = 0;
  // How many numbers of the first choice's result prove something (bits_compared.h). 0 if any is not finite, or if it
  // fails.
  virtual int64_t telling() = 0;
  // What one run takes. None: it fails.
  virtual std::optional<double> seconds_of(const ProductWay& way) = 0;
  // Whether its result has the bits of the first choice's. False where it fails.
  virtual bool same_bits(const ProductWay& way) = 0;
};

// Another way is taken once it has given the same bits on data of so many calls, of so many numbers together. Sums over
// k in another order differ in the last bits of f32: of these numbers, rounded to 16 bits, some dozens would show it.
inline constexpr int kLeastProofs = 2;
inline constexpr int64_t kLeastTelling = int64_t{1} << 20;
inline constexpr int kMostTrials = 16;                                // calls; then the first choice stays
inline constexpr int64_t kLeastOfCall = kLeastTelling / kMostTrials;  // numbers: with fewer a call proves nothing
inline constexpr int64_t kLeastOutputs = 2 * kLeastOfCall;            // of a product that is tried at all
inline constexpr double kWorthwhile = 0.97;      // of the first choice's time: what another way must stay below
inline constexpr int kRunsToTime = 4;            // that seconds_of makes, about
inline constexpr double kMostSearchSeconds = 1;  // of one product: no other way is timed beyond

// The way of one product. Not thread-safe.
class ProductChoice {
 public:
  // `first`: the library's own choice. `outputs`: numbers of the result that may prove something; with too few of them
  // the first choice stays. `kept`: what was found earlier, which is proven again before it is taken.
  ProductChoice(const ProductWay& first, int64_t outputs, const std::optional<ProductWay>& kept);

  // To compute with: the first choice till another has been proven. No two of them differ in a bit.
  const ProductWay& way() const { return way_; }
  const ProductWay& first() const { return first_; }
  // Whether a call is still to be tried.
  bool is_open() const { return open_; }
  // Asked once at each call while open: whether to try this call (learn), or to pass if nothing can be tried with it.
  // After a call that proved nothing, 1, 2, 4, ... calls are skipped: a step whose gradients overflow has many.
  bool is_due();
  // Searches, or proves what was found. Returns the way that is now settled and worth keeping, if any.
  std::optional<ProductWay> learn(ProductTrial& trial);
  void pass();

 private:
  std::optional<ProductWay> settle(const ProductWay& way);
  std::optional<ProductWay> search(ProductTrial& trial, const std::vector<ProductWay>& ways, double first_s) const;

  ProductWay first_, way_;
  std::optional<ProductWay> found_;  // not yet proven
  std::vector<ProductWay> refuted_;  // equal to the first choice on some data, not on other
  bool open_ = true;
  int trials_ = 0, proofs_ = 0;
  int64_t left_out_ = 0, gap_ = 1;  // calls before the next trial; after the next that proves nothing
  int64_t telling_ = 0;             // that have proven `found_`
};

}  // namespace weft
