#include "weft/plan/step_data.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "weft/ops/cost.h"
#include "weft/plan/dry_step.h"
#include "weft/plan/op_notes.h"

namespace weft {
namespace {

using Op = Instruction::Op;

// Collects what a dry step does.
class Collector {
 public:
  explicit Collector(DryStep& dry) : dry_(dry), model_(dry.state().model), ops_(dry.backend()) {}

  StepData run() {
    dry_.run({.backend = &ops_,
              .begins = [&](const Action* action, const Instruction& i) { begin(action, i); },
              .ends = [&] { end(); }});
    open_ = &data_.end;  // to which norm and update belong too
    end();
    count_times();
    return std::move(data_);
  }

 private:
  void begin(const Action* action, const Instruction& i) {
    if (std::exchange(is_before_, false)) {
      data_.before.ops = ops_.take();
      data_.before.transfers = dry_.traffic().counts();
    }
    if (next_ == now_.parts.size()) {
      end_action();
      if (action != nullptr) begin_action(*action);
    }
    open_ = action != nullptr ? &now_.parts[next_++] : &data_.end;
    open_->what = i;
    open_->of = object_of(i, model_.layers(action != nullptr ? action->chunk : 0), dry_.state().params);
    sent_ = dry_.traffic();
  }
  void begin_action(const Action& a) {
    const Instructions list = instructions_of(a.what, model_.layers(a.chunk));
    now_ = {.what = a.what, .chunk = a.chunk, .times = 1, .parts = std::vector<StepPart>(list.size())};
    const auto needs = needs_of(list, model_.layers(a.chunk));
    for (size_t i = 0; i < list.size(); ++i) now_.parts[i].after = needs[i];
  }
  void end() {
    for (StepOp& op : ops_.take()) open_->ops.push_back(std::move(op));
    open_->transfers = dry_.traffic().since(sent_).counts();
  }
  void end_action() {
    if (now_.parts.empty()) return;
    const auto same = std::find_if(data_.actions.begin(), data_.actions.end(), [&](const StepAction& a) {
      return a.what == now_.what && a.chunk == now_.chunk && a.parts == now_.parts;
    });
    if (same == data_.actions.end())
      data_.actions.push_back(std::move(now_));
    else
      ++same->times;
    now_ = {};
    next_ = 0;
  }
  // Those that the dry run passed over are like those that it ran most often.
  void count_times() {
    for (StepAction& a : data_.actions) {
      int64_t all = 0, run = 0;
      const StepAction* most = &a;
      for (const Action& one : dry_.spec().schedule) all += one.what == a.what && one.chunk == a.chunk;
      for (const StepAction& other : data_.actions) {
        if (other.what != a.what || other.chunk != a.chunk) continue;
        run += other.times;
        if (other.times > most->times) most = &other;
      }
      if (most == &a) a.times += all - run;
    }
  }
  DryStep& dry_;
  const Model& model_;
  OpNotes ops_;
  StepData data_;
  StepAction now_ = {};
  size_t next_ = 0;
  StepPart* open_ = nullptr;
  bool is_before_ = true;
  Traffic sent_;
};

std::string title_of(const StepAction& a, int64_t times) {
  return fmt::format("{} of chunk {}, {} times", char(a.what), a.chunk, times);
}

bool moves(const Instruction& i) {
  switch (i.op) {
    case Op::receive:
    case Op::send:
    case Op::fetch:
    case Op::prefetch:
    case Op::release:
    case Op::reduce_gradients:
      return true;
    default:
      return false;
  }
}

// Those of its parts that `shows` accepts: ": load, fetch blocks.0".
template <typename Shows>
std::string list_of(const StepAction& a, const Shows& shows) {
  std::string text;
  for (const StepPart& p : a.parts) {
    if (!shows(p.what)) continue;
    text += fmt::format("{} {}{}{}", text.empty() ? ":" : ",", name_of(p.what.op), p.of.empty() ? "" : " ", p.of);
  }
  return text;
}

// "dp all-gather, tp reduce-scatter"
std::string kinds_of(const StepPart& part) {
  std::vector<std::string> kinds;
  for (const auto& [what, count] : part.transfers)
    kinds.push_back(fmt::format("{} {}", what.first, name_of(what.second)));
  return kinds.empty() ? "nothing" : fmt::format("{}", fmt::join(kinds, ", "));
}

nlohmann::json to_json(const StepOp& op) {
  nlohmann::json json{{"region", op.region}, {"op", op.name}, {"flops", op.flops}, {"bytes", op.bytes}};
  for (const StepOp::Operand& o : op.operands)
    json["operands"].push_back({{"field", o.field},
                                {"role", o.role == Role::in    ? "in"
                                         : o.role == Role::out ? "out"
                                                               : "inout"},
                                {"dtype", name_of(o.dtype)},
                                {"shape", o.shape.to_string()}});
  return json;
}

nlohmann::json to_json(const StepPart& part) {
  nlohmann::json json{{"do", name_of(part.what.op)},
                      {"of", part.of},
                      {"after", part.after},
                      {"ops", nlohmann::json::array()},
                      {"transfers", nlohmann::json::array()}};
  for (const StepOp& op : part.ops) json["ops"].push_back(to_json(op));
  for (const auto& [what, count] : part.transfers)
    json["transfers"].push_back(
        {{"axis", what.first}, {"kind", name_of(what.second)}, {"calls", count.calls}, {"bytes", count.bytes}});
  return json;
}

}  // namespace

StepOp step_op_of(const AnyOp& op, std::string_view region) {
  const OpCost cost = op.cost();
  StepOp one{.region = std::string(region),
             .name = std::string(op.name()),
             .operands = {},
             .flops = cost.flops,
             .bytes = double(cost.bytes_read + cost.bytes_written)};
  if (const Matmul* product = op.as<Matmul>()) one.product = shape_of(*product);
  for (const Field& f : op.fields())
    if (*f.tensor) one.operands.push_back({std::string(f.name), f.role, f.tensor->dtype, f.tensor->shape});
  return one;
}

StepData step_data_of(const RunPlan& run, const WorkspaceModel& workspace) {
  return step_data_of(run.model, run.step, *run.optimizer, workspace);
}

StepData step_data_of(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                      const WorkspaceModel& workspace) {
  DryStep dry(model, step, optimizer, workspace);
  return Collector(dry).run();
}

std::vector<std::vector<int>> needs_of(const Instructions& list, const std::vector<ModelLayer>& layers) {
  std::vector<std::vector<int>> needs(list.size());
  const auto uses = [&](int layer, int unit) {
    const std::vector<int>& units = layers[size_t(layer)].units;
    return std::find(units.begin(), units.end(), unit) != units.end();
  };
  const auto computes = [](Op op) { return op == Op::forward || op == Op::dgrad || op == Op::wgrad; };
  // Does `later` need what `earlier` has done: the same stream, weights or gradients.
  const auto need = [&](const Instruction& later, const Instruction& earlier) {
    const bool stream = later.op == Op::forward || later.op == Op::dgrad || later.op == Op::send;
    switch (earlier.op) {
      case Op::load:
      case Op::receive:
      case Op::wait_buffer:
        return stream;
      case Op::forward:
        return stream || (later.op == Op::release && uses(earlier.at, later.at));
      case Op::dgrad:
        return stream || (later.op == Op::wgrad && later.at == earlier.at) ||
               ((later.op == Op::release || later.op == Op::reduce_gradients) && uses(earlier.at, later.at));
      case Op::wgrad:
        return later.op == Op::reduce_gradients && uses(earlier.at, later.at);
      case Op::fetch:
        return later.op != Op::wgrad && computes(later.op) && uses(later.at, earlier.at);
      case Op::prefetch:
        return later.op == Op::fetch && later.at == earlier.at;
      case Op::open_gradients:
        return (later.op == Op::wgrad || later.op == Op::dgrad) && uses(later.at, earlier.at);
      default:
        return false;
    }
  };
  for (size_t i = 0; i < list.size(); ++i) {
    std::map<Op, int> last_stream;  // what made the stream, or its gradient, is needed alone
    for (size_t j = 0; j < i; ++j) {
      if (!need(list[i], list[j])) continue;
      const bool same = computes(list[j].op) && computes(list[i].op) && list[i].op != Op::wgrad;
      if (!same) needs[i].push_back(int(j));
      if (same) last_stream[list[j].op] = int(j);
    }
    for (const auto& [op, j] : last_stream) needs[i].push_back(j);
    std::sort(needs[i].begin(), needs[i].end());
  }
  return needs;
}

std::string to_string(const StepData& data) {
  std::string text;
  if (!data.before.ops.empty())
    text += fmt::format("before it, forward only: {} ops a micro-batch\n", data.before.ops.size());
  for (const StepAction& a : data.actions)
    text += title_of(a, a.times) + list_of(a, [](const Instruction&) { return true; }) + "\n";
  return text;
}

std::string moves_of(const StepData& data) {
  struct Line {
    const StepAction* first;
    std::string list;
    int64_t times = 0;
  };
  std::vector<Line> lines;
  for (const StepAction& a : data.actions) {
    std::string list = list_of(a, moves);
    if (list.empty()) list = ": nothing";
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& l) {
      return l.first->what == a.what && l.first->chunk == a.chunk && l.list == list;
    });
    (same == lines.end() ? lines.emplace_back(Line{&a, std::move(list)}) : *same).times += a.times;
  }
  std::string text;
  if (!data.before.ops.empty()) text += fmt::format("before it, forward only: {}\n", kinds_of(data.before));
  for (const Line& l : lines) text += title_of(*l.first, l.times) + l.list + "\n";
  return text + fmt::format("the end, sums and update: {}\n", kinds_of(data.end));
}

nlohmann::json to_json(const StepData& data) {
  nlohmann::json json{{"actions", nlohmann::json::array()}, {"end", to_json(data.end)}};
  if (!data.before.ops.empty()) {
    const nlohmann::json before = to_json(data.before);
    json["before"] = {{"ops", before["ops"]}, {"transfers", before["transfers"]}};
  }
  for (const StepAction& a : data.actions) {
    nlohmann::json& one = json["actions"].emplace_back(
        nlohmann::json{{"action", std::string(1, char(a.what))}, {"chunk", a.chunk}, {"times", a.times}});
    for (const StepPart& p : a.parts) one["instructions"].push_back(to_json(p));
  }
  return json;
}

}  // namespace weft
