// Weights that one store borrows of another, which may keep them in shards and gather them where there is room.
#include <gtest/gtest.h>

#include "weft/comm/local_group.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/sharding/param_store.h"

namespace weft {
namespace {

constexpr int kLentUnits = 3;
constexpr int64_t kLentRows = 40, kLentCols = 50;

double lent_value(double first, int unit, int64_t element) { return first + 1e4 * unit + double(element); }

// A lender and a borrower on one of two ranks, which have a shard each of what ZeRO cuts.
class TwoStores {
 public:
  TwoStores(const ProcessMesh& mesh, int zero_stage)
      : order_{.ranks = 2, .rank = mesh.world->rank(), .zero_stage = zero_stage, .shards = zero_stage > 0 ? 2 : 1},
        lender(kF64, order_, mesh, WeightUse::frozen),
        borrower(kF64, order_, mesh, WeightUse::frozen) {
    for (ParamStore* store : {&lender, &borrower})
      for (int unit = 0; unit < kLentUnits; ++unit) {
        store->add({.name = fmt::format("matrix {}", unit),
                    .shape = {kLentRows, kLentCols},
                    .place = weights(Spmd::Invariant)});
        store->close_unit(fmt::format("unit {}", unit), unit);
      }
    lender.allocate_frozen(params_, transit_);
    borrower.borrow(lender);
  }

  void write(double first) {
    for (int unit = 0; unit < kLentUnits; ++unit)
      for (const ParamStore::Stored& s : lender.stored(*lender.params_of(unit)[0]))
        for (int64_t r = 0; r < s.rows.count; ++r)
          for (int64_t c = 0; c < s.cols.count; ++c)
            s.master.as<double>()[r * s.cols.count + c] =
                lent_value(first, unit, (s.rows.first + r) * kLentCols + s.cols.first + c);
    lender.masters_changed(backend_);
  }

  static const double* values_of(const ParamStore& store, int unit) {
    return store.params_of(unit)[0]->value.as<double>();
  }
  static void expect_values(const ParamStore& store, int unit, double first) {
    ASSERT_EQ(store.params_of(unit)[0]->value.shape, Shape(kLentRows, kLentCols)) << unit;
    int64_t wrong = 0;
    for (int64_t i = 0; i < kLentRows * kLentCols; ++i)
      wrong += values_of(store, unit)[i] != lent_value(first, unit, i) ? 1 : 0;
    EXPECT_EQ(wrong, 0) << "of unit " << unit << ", which begins with " << values_of(store, unit)[0];
  }

 private:
  Arena params_{"params", 1 << 20}, transit_{"transit", 1 << 20};
  RefBackend backend_{1};
  const GradientOrder order_;

 public:
  ParamStore lender, borrower;
};

void on_two_ranks(int zero_stage, const std::function<void(TwoStores&)>& f) {
  run_local(MeshSizes{.dp = 2, .shards = zero_stage > 0 ? 2 : 1}, [&](const ProcessMesh& mesh) {
    TwoStores stores(mesh, zero_stage);
    f(stores);
  });
}

// The buffer of the first time belongs to another unit the second time: who kept where a weight was reads that one's.
TEST(BorrowedWeights, AreReadWhereTheyAreGatheredNow) {
  for (const int stage : {0, 3})
    on_two_ranks(stage, [&](TwoStores& stores) {
      stores.write(1);
      stores.borrower.fetch(1);
      TwoStores::expect_values(stores.borrower, 1, 1);
      const double* before = TwoStores::values_of(stores.borrower, 1);
      stores.borrower.release(1);
      stores.lender.fetch(0);
      stores.borrower.fetch(1);
      TwoStores::expect_values(stores.lender, 0, 1);
      TwoStores::expect_values(stores.borrower, 1, 1);
      EXPECT_EQ(TwoStores::values_of(stores.borrower, 1) == before, stage == 0) << "then this test sees nothing";
      stores.borrower.release(1);
      stores.lender.release(0);
    });
}

TEST(BorrowedWeights, AreThoseOfTheMastersNow) {
  for (const int stage : {0, 1, 3})
    on_two_ranks(stage, [&](TwoStores& stores) {
      for (const double first : {1.0, 5.0}) {
        stores.write(first);
        for (int unit = 0; unit < kLentUnits; ++unit) {
          stores.borrower.fetch(unit);
          if (unit + 1 < kLentUnits) stores.borrower.prefetch(unit + 1);
          TwoStores::expect_values(stores.borrower, unit, first);
          stores.borrower.release(unit);
        }
      }
    });
}

}  // namespace
}  // namespace weft
