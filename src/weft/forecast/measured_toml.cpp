// [[measured]] of a cluster's file.
#include <algorithm>

#include "weft/base/error.h"
#include "weft/forecast/measured.h"
#include "weft/forecast/toml_values.h"
#include "weft/recipe/recipe_read.h"

namespace weft {
namespace {

constexpr double kGiga = 1e9, kMicro = 1e-6;
constexpr double kMostSize = 1e15, kMostMicros = 1e12, kMostGigas = 1e9;
constexpr Traffic::Kind kKinds[] = {Traffic::Kind::all_reduce, Traffic::Kind::all_gather, Traffic::Kind::reduce_scatter,
                                    Traffic::Kind::send};

// Sizes that ascend.
std::vector<double> read_sizes(const TomlTable& table, const char* key, double least) {
  std::vector<double> sizes;
  table.need(key, sizes, least, kMostSize);
  for (size_t i = 1; i < sizes.size(); ++i)
    if (sizes[i] <= sizes[i - 1])
      throw ConfigError(
          fmt::format("{}: {} = [... {:g}, {:g} ...] must ascend", table.place(), key, sizes[i - 1], sizes[i]));
  return sizes;
}

void check_count(const TomlTable& table, const char* key, size_t count, size_t needed) {
  if (count != needed)
    throw ConfigError(
        fmt::format("{}: {} has {} numbers; as many as its sizes are {}", table.place(), key, count, needed));
}

Curve read_curve(const TomlTable& table) {
  Curve curve{.at = read_sizes(table, "bytes", 1), .seconds = {}};
  table.need("us", curve.seconds, 1e-3, kMostMicros);
  check_count(table, "us", curve.seconds.size(), curve.at.size());
  for (size_t i = 1; i < curve.seconds.size(); ++i)
    if (curve.seconds[i] < curve.seconds[i - 1])
      throw ConfigError(fmt::format("{}: us falls from {:g} to {:g}: more bytes never take less", table.place(),
                                    curve.seconds[i - 1], curve.seconds[i]));
  for (double& s : curve.seconds) s *= kMicro;
  return curve;
}

RateGrid read_rates(const TomlTable& table) {
  table.refuse_others({"op", "dtype", "form", "m", "n", "k", "gflops"});
  RateGrid grid;
  table.need("op", grid.op);
  table.need("dtype", grid.dtype);
  table.get("form", grid.form);
  grid.m = read_sizes(table, "m", 1);
  grid.n = read_sizes(table, "n", 1);
  grid.k = read_sizes(table, "k", 1);
  table.need("gflops", grid.flops_per_s, 1e-6, kMostGigas);
  check_count(table, "gflops", grid.flops_per_s.size(), grid.m.size() * grid.n.size() * grid.k.size());
  for (double& rate : grid.flops_per_s) rate *= kGiga;
  return grid;
}

OpCurve read_op(const TomlTable& table) {
  table.refuse_others({"op", "dtypes", "bytes", "us"});
  OpCurve op;
  table.need("op", op.op);
  table.need("dtypes", op.dtypes);
  op.curve = read_curve(table);
  return op;
}

CollectiveCurve read_collective(const TomlTable& table) {
  table.refuse_others({"kind", "ranks", "far", "bytes", "us"});
  CollectiveCurve c{.kind = Traffic::Kind::send, .curve = {}};
  std::string kind;
  table.need("kind", kind);
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto k) { return name_of(k) == kind; });
  if (found == std::end(kKinds))
    throw ConfigError(fmt::format("{}: kind = {} must be all-reduce, all-gather, reduce-scatter or send", table.place(),
                                  shown_name(kind)));
  c.kind = *found;
  table.get("ranks", c.ranks, 2, 1 << 20);
  table.get("far", c.far);
  c.curve = read_curve(table);
  return c;
}

MeasuredRanks read_ranks(const TomlTable& table) {
  table.refuse_others({"ranks", "threads", "processes", "gap_us", "rate", "op", "collective"});
  MeasuredRanks measured;
  table.get("ranks", measured.ranks, 1, 1 << 20);
  table.get("threads", measured.threads, 1, 1 << 20);
  table.get("processes", measured.processes);
  double gap_us = 0;
  table.get("gap_us", gap_us, 0, 1e6);
  measured.gap_s = gap_us * kMicro;
  for (const TomlTable& t : table.tables("rate")) measured.rates.push_back(read_rates(t));
  for (const TomlTable& t : table.tables("op")) measured.ops.push_back(read_op(t));
  for (const TomlTable& t : table.tables("collective")) measured.collectives.push_back(read_collective(t));
  if (measured.rates.empty() || measured.ops.empty())
    throw ConfigError(fmt::format("{}: [[measured]] needs [[measured.rate]] and [[measured.op]]", table.place()));
  return measured;
}

std::string list_of(const char* key, const std::vector<double>& values, double unit) {
  std::string text = fmt::format("{} = [", key);
  for (size_t i = 0; i < values.size(); ++i) text += fmt::format("{}{:.6g}", i > 0 ? ", " : "", values[i] / unit);
  return text + "]\n";
}

// With all their digits, as two may differ in the last.
std::string sizes_of(const char* key, const std::vector<double>& sizes) {
  return fmt::format("{} = [{}]\n", key, fmt::join(sizes, ", "));
}

}  // namespace

std::vector<MeasuredRanks> read_measured(const TomlTable& file, const std::string& source) {
  std::vector<MeasuredRanks> all;
  for (const TomlTable& table : file.tables("measured")) {
    MeasuredRanks one = read_ranks(table);
    for (const MeasuredRanks& other : all)
      if (other.ranks == one.ranks)
        throw ConfigError(fmt::format("{}: two tables [[measured]] of {} ranks", source, one.ranks));
    all.push_back(std::move(one));
  }
  std::sort(all.begin(), all.end(), [](const MeasuredRanks& a, const MeasuredRanks& b) { return a.ranks < b.ranks; });
  return all;
}

std::string to_toml(const MeasuredRanks& m) {
  std::string text = fmt::format("\n[[measured]]\nranks = {}\nthreads = {}\n{}gap_us = {:.6g}\n", m.ranks, m.threads,
                                 m.processes ? "processes = true\n" : "", m.gap_s / kMicro);
  for (const RateGrid& g : m.rates)
    text += fmt::format("[[measured.rate]]\nop = {}\ndtype = {}\n{}{}{}{}{}", toml_quoted(g.op), toml_quoted(g.dtype),
                        g.form.empty() ? "" : fmt::format("form = {}\n", toml_quoted(g.form)), sizes_of("m", g.m),
                        sizes_of("n", g.n), sizes_of("k", g.k), list_of("gflops", g.flops_per_s, kGiga));
  for (const OpCurve& o : m.ops)
    text += fmt::format("[[measured.op]]\nop = {}\ndtypes = {}\n{}{}", toml_quoted(o.op), toml_quoted(o.dtypes),
                        sizes_of("bytes", o.curve.at), list_of("us", o.curve.seconds, kMicro));
  for (const CollectiveCurve& c : m.collectives)
    text +=
        fmt::format("[[measured.collective]]\nkind = \"{}\"\nranks = {}\n{}{}{}", name_of(c.kind), c.ranks,
                    c.far ? "far = true\n" : "", sizes_of("bytes", c.curve.at), list_of("us", c.curve.seconds, kMicro));
  return text;
}

}  // namespace weft
