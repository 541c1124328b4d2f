// `weft log` and `weft card`: what each of their commands needs. Each returns its exit status and throws Error.
#pragma once
#include <optional>
#include <string>

namespace weft {

struct LogOptions {
  std::string file;
  std::string hash;         // of `verify`: of a line that must be in it
  std::string text, model;  // of `add`: what it is to say; a model that it is about, empty: none
};
int run_log_verify(const LogOptions& options);  // exit status 1: it is not whole
int run_log_add(const LogOptions& options);

// Grams of CO2 a kWh: the mean of the world in 2024.
inline constexpr double kUsualGramsPerKwh = 473;
inline constexpr const char* kSourceOfUsualGrams = "Ember, Global Electricity Review 2025: the world's mean of 2024";

struct CardOptions {
  std::string model;    // a model's folder, a checkpoint, or a run's folder (its newest checkpoint)
  std::string out;      // the file; empty: README.md in the folder
  std::string licence;  // of the model; empty: not known
  std::string results;  // a file of `weft eval --output`; empty: the run's own
  std::optional<double> watts, grams_per_kwh;
  bool force = false;  // replace what somebody else wrote
};
int run_card(const CardOptions& options);

}  // namespace weft
