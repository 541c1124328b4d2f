// Numbers of programs from measured runs, and what they say of runs that the fit has not seen.
#include <gtest/gtest.h>

#include "weft/forecast/score.h"

namespace weft {
namespace {

// A device's step with so much of everything, at best rates.
std::shared_ptr<RunWork> work_of_size(double products_s, double memory_s, int64_t kernels) {
  auto run = std::make_shared<RunWork>();
  run->tokens = 1000;
  ActionWork action{.what = Do::backward, .chunk = 0, .times = 1, .compute = {}, .transfers = {}};
  action.compute[WorkClass::products] = products_s;
  action.compute[WorkClass::memory] = memory_s;
  action.compute.kernels = kernels;
  run->kinds.emplace_back().actions = {action};
  run->kind_of = {0};
  return run;
}

PlannedRow row_of(const std::string& source, const std::string& framework, double products_s, double memory_s) {
  PlannedRow p;
  static int rows = 0;
  p.row.id = std::to_string(++rows);
  p.row.source = source;
  p.row.framework = framework;
  p.work = work_of_size(products_s, memory_s, 10);
  p.memory_bytes = (2 + 10 * products_s) * double(1 << 30);
  p.kept_bytes = double(1 << 30);
  return p;
}

ProgramProfile program(const std::string& name, std::vector<std::string> frameworks = {}) {
  ProgramProfile profile;
  profile.name = name;
  profile.frameworks = std::move(frameworks);
  return profile;
}

// Rows of two sources that differ in what takes most of their time.
std::vector<PlannedRow> rows_of_two_sources() {
  std::vector<PlannedRow> rows;
  for (int i = 1; i <= 6; ++i) {
    rows.push_back(row_of("first", "one", 0.1 * i, 0.3));
    rows.push_back(row_of("second", "two", 0.3, 0.1 * i));
  }
  return rows;
}

// Measured as a program with these numbers would be.
void measure(std::vector<PlannedRow>& rows, const ProgramProfile& truth) {
  for (PlannedRow& p : rows) {
    const RowForecast f = forecast_of(p, Profiles({truth}));
    p.row.tokens_per_s_per_gpu = f.tokens_per_s_per_gpu;
    p.row.peak_memory_gib = f.peak_memory_gib;
  }
}

double worst(const std::vector<PlannedRow>& rows, const Profiles& profiles) {
  double most = 0;
  for (const PlannedRow& p : rows)
    most = std::max(most, std::abs(forecast_of(p, profiles).tokens_per_s_per_gpu / *p.row.measured_rate() - 1));
  return most;
}

TEST(Fit, FindsTheNumbersThatRowsWereMadeWith) {
  ProgramProfile truth = program("truth");
  truth.products = 0.55;
  truth.memory = 0.4;
  truth.memory_part = 2;
  std::vector<PlannedRow> rows = rows_of_two_sources();
  measure(rows, truth);
  const Profiles base({program("any program")});
  EXPECT_GT(worst(rows, base), 0.3);
  const Profiles fitted = fit_profiles(rows, base);
  EXPECT_LT(worst(rows, fitted), 0.06);
  EXPECT_NEAR(fitted.all()[0].products, truth.products, 0.05);
  for (const PlannedRow& p : rows)
    EXPECT_NEAR(forecast_of(p, fitted).peak_memory_gib / *p.row.peak_memory_gib, 1, 0.05);
}

// Steps of equal products, cut into ever more kernels.
TEST(Fit, FindsTheGapBesideEachKernel) {
  std::vector<PlannedRow> rows;
  for (int i = 1; i <= 6; ++i) {
    rows.push_back(row_of("first", "one", 0.3, 0.1));
    rows.back().work = work_of_size(0.3, 0.1, 1000 * i);
  }
  ProgramProfile truth = program("truth");
  truth.gap_us = 60;
  truth.products = 0.9;
  measure(rows, truth);
  const Profiles fitted = fit_profiles(rows, Profiles({program("any program")}));
  EXPECT_LT(worst(rows, fitted), 0.03);
  EXPECT_NEAR(fitted.all()[0].gap_us, 60, 10);
}

// The same work of a step on two ranks of tp, which meet ever more often.
TEST(Fit, FindsWhatRanksOfTpWaitAtEachCollective) {
  std::vector<PlannedRow> rows;
  for (int i = 0; i < 6; ++i) {
    rows.push_back(row_of("first", "one", 0.3, 0.1));
    auto work = work_of_size(0.3, 0.1, 10);
    work->kinds[0].actions[0].transfers = {
        {.axis = "tp", .kind = Traffic::Kind::all_reduce, .calls = 1 + 40 * i, .each = {.inside_s = 1e-5}}};
    rows.back().work = work;
  }
  ProgramProfile truth = program("truth");
  truth.tp_wait_us = 1200;
  truth.products = 0.9;
  measure(rows, truth);
  const Profiles fitted = fit_profiles(rows, Profiles({program("any program")}));
  EXPECT_LT(worst(rows, fitted), 0.03);
  EXPECT_NEAR(fitted.all()[0].tp_wait_us, 1200, 200);
}

// Half of the groups ran on slower machines than the others, which no number of a program explains: what layouts of one
// group cost beside each other is found still.
TEST(Fit, HoldsLayoutsOfAGroupBesideEachOther) {
  std::vector<PlannedRow> rows;
  for (int i = 1; i <= 6; ++i)
    for (const char* group : {"quick", "slow"}) {
      rows.push_back(row_of("first", "one", 0.3, 0.1 * i));
      rows.back().row.group = group;
    }
  ProgramProfile truth = program("truth");
  truth.memory = 0.35;
  measure(rows, truth);
  for (PlannedRow& p : rows)
    if (p.row.group == "slow") p.row.tokens_per_s_per_gpu = *p.row.tokens_per_s_per_gpu / 1.5;
  const auto off = [](const std::vector<PlannedRow>& known) {
    const Profiles fitted = fit_profiles(known, Profiles({program("any program")}));
    const double forecast = forecast_of(known.front(), fitted).tokens_per_s_per_gpu /
                            forecast_of(known[known.size() - 2], fitted).tokens_per_s_per_gpu;
    return std::abs(forecast / (*known.front().row.measured_rate() / *known[known.size() - 2].row.measured_rate()) - 1);
  };
  const double in_groups = off(rows);
  for (PlannedRow& p : rows) p.row.group.clear();
  EXPECT_LT(in_groups, off(rows) / 2);
}

TEST(Fit, ProgramsWithoutRowsAndFixedNumbersStay) {
  std::vector<PlannedRow> rows = rows_of_two_sources();
  ProgramProfile truth = program("truth");
  truth.products = 0.5;
  measure(rows, truth);
  ProgramProfile one = program("one", {"one"}), other = program("other", {"no such framework"});
  one.fixed = {"products"};
  one.products = 0.9;
  other.products = 0.77;
  const Profiles fitted = fit_profiles(rows, Profiles({program("any program"), one, other}));
  EXPECT_EQ(fitted.all()[1].products, 0.9);
  EXPECT_EQ(fitted.all()[2].products, 0.77);
  EXPECT_NE(fitted.all()[0].products, ProgramProfile().products);
}

// What was measured of a fold has no way into its forecasts, whatever the first profiles say.
TEST(CrossValidation, ForecastsAFoldWithoutLookingAtIt) {
  const auto by_source = [](const RunRow& row) { return row.source; };
  std::vector<PlannedRow> rows = rows_of_two_sources();
  ProgramProfile truth = program("truth");
  truth.products = 0.6;
  measure(rows, truth);
  const Profiles base({program("any program"), program("one", {"one"})});
  const std::vector<RowForecast> before = cross_validate(rows, base, by_source);
  for (PlannedRow& p : rows)
    if (p.row.source == "first") p.row.tokens_per_s_per_gpu = *p.row.tokens_per_s_per_gpu / 3;
  ProgramProfile told = base.all()[1];
  told.products = 0.2;
  const std::vector<RowForecast> after = cross_validate(rows, Profiles({program("any program"), told}), by_source);
  bool others_changed = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_GT(before[i].tokens_per_s_per_gpu, 0);
    if (rows[i].row.source == "first")
      EXPECT_EQ(before[i].tokens_per_s_per_gpu, after[i].tokens_per_s_per_gpu);
    else
      others_changed |= before[i].tokens_per_s_per_gpu != after[i].tokens_per_s_per_gpu;
  }
  EXPECT_TRUE(others_changed);
}

TEST(Fit, KernelsOlderThanTheDeviceReachLessOfIt) {
  const auto work = work_of_size(1, 0, 1);
  ProgramProfile old = program("old");
  old.newer = 0.8;
  const double on_ampere = price_step(*work, old).step_s;
  work->generation = 2;
  EXPECT_NEAR(price_step(*work, old).step_s / on_ampere, 1 / 0.64, 1e-9);
  EXPECT_NEAR(price_step(*work, program("new")).step_s, on_ampere, 1e-9);
}

TEST(Fit, MemoryIsOfWhatIsKeptAndOfTheRest) {
  ProgramProfile p;
  p.memory_kept = 2;
  p.memory_part = 3;
  p.memory_base = 7;
  EXPECT_EQ(peak_memory(p, 100, 40), 40 * 2 + 60 * 3 + 7);
}

}  // namespace
}  // namespace weft
