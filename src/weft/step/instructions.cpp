#include "weft/step/instructions.h"

namespace weft {
namespace {

using Op = Instruction::Op;

// Appends to a list, for the layers of a chunk.
struct Writer {
  const std::vector<ModelLayer>& layers;
  Instructions list = {};

  const ModelLayer& layer(int i) const { return layers[size_t(i)]; }
  int last() const { return int(layers.size()) - 1; }
  void add(Op op, int at = 0) { list.push_back({op, at}); }
  void each_unit(Op op, int i) {
    for (const int unit : layer(i).units) add(op, unit);
  }
  // Values are there while `f` adds what reads them; those of layer `next`, if it is one, are on their way.
  template <class F>
  void fetched(int i, int next, const F& f) {
    each_unit(Op::fetch, i);
    if (next >= 0 && next <= last()) each_unit(Op::prefetch, next);
    f();
    each_unit(Op::release, i);
  }
  void writes_gradients(Op op, int i) {
    each_unit(Op::open_gradients, i);
    add(op, i);
    each_unit(Op::reduce_gradients, i);
  }
  // Forward of layer i; the next that is fetched is behind it, in backward too if that is the head.
  void forward(int i) {
    fetched(i, i + 1, [&] { add(Op::forward, i); });
  }
  void dgrad(int i) {
    if (layer(i).kind == LayerKind::embedding) return add(Op::dgrad, i);
    const int next = i > 0 && layer(i - 1).kind == LayerKind::block ? i - 1 : -1;
    fetched(i, next, [&] {
      if (layer(i).kind == LayerKind::head) return writes_gradients(Op::dgrad, i);
      add(Op::dgrad, i);
    });
  }
  void wgrad(int i) {
    if (layer(i).kind != LayerKind::head) writes_gradients(Op::wgrad, i);
  }
};

}  // namespace

Instructions instructions_of(Do what, const std::vector<ModelLayer>& layers) {
  Writer w{layers};
  const bool embeds = layers.front().kind == LayerKind::embedding, ends = layers.back().kind == LayerKind::head;
  if (what == Do::forward) {
    w.add(Op::load);
    if (!embeds) w.add(Op::receive);
    for (int i = 0; i <= w.last(); ++i) {
      if (layers[size_t(i)].kind == LayerKind::head)
        w.add(Op::forward, i);
      else
        w.forward(i);
    }
    if (!ends) w.add(Op::send);
    return w.list;
  }
  const bool dgrads = what != Do::wgrad, wgrads = what != Do::dgrad;
  if (dgrads && !ends) w.add(Op::receive);
  if (dgrads && !embeds) w.add(Op::wait_buffer);
  for (int i = w.last(); i >= 0; --i) {
    if (dgrads) w.dgrad(i);
    if (dgrads && i == 0 && !embeds) w.add(Op::send);  // the other stage need not wait for the wgrad
    if (wgrads) w.wgrad(i);
  }
  if (dgrads && !ends) w.add(Op::wait_sent);
  return w.list;
}

Instructions scoring_instructions(const std::vector<ModelLayer>& layers) {
  Writer w{layers};
  if (layers.front().kind != LayerKind::embedding) w.add(Op::receive);
  for (int i = 0; i <= w.last(); ++i) w.forward(i);
  if (layers.back().kind != LayerKind::head) w.add(Op::send);
  return w.list;
}

std::string_view name_of(Instruction::Op op) {
  static constexpr std::string_view kNames[] = {
      "load",  "receive", "send",     "wait_sent", "wait_buffer",    "forward",          "dgrad",
      "wgrad", "fetch",   "prefetch", "release",   "open_gradients", "reduce_gradients", "finish_gradients"};
  return kNames[size_t(op)];
}

std::string object_of(const Instruction& i, const std::vector<ModelLayer>& layers, const ParamStore& params) {
  if (i.op >= Op::fetch && i.op < Op::finish_gradients) return params.unit_name(i.at);
  if (i.op < Op::forward || i.op > Op::wgrad) return "";
  return params.unit_name(layers[size_t(i.at)].units.back());
}

std::string to_string(const Instructions& list) {
  std::string text;
  for (const Instruction& i : list) {
    text += text.empty() ? "" : ", ";
    text += name_of(i.op);
    if (i.op >= Op::forward) text += " " + std::to_string(i.at);
  }
  return text;
}

}  // namespace weft
