#include "weft/step/teacher_apart.h"

#include <algorithm>
#include <cstring>

#include "weft/base/parallel.h"
#include "weft/device/host_parts.h"
#include "weft/step/executor.h"

namespace weft {
namespace {

int stage_of_head(const StepSpec& step) {
  return place_of(step.pipeline, step.pipeline.num_virtual_stages() - 1).stage;
}

SequenceCut cut_of(const StepSpec& step, int cp) { return {step.seq_length, {step.mesh.cp, cp}}; }

// The parts of a row.
int32_t* ids_of(const Tensor& rows, int64_t row) { return rows.as<int32_t>() + row * rows.cols(); }
float* logits_of(const Tensor& rows, int64_t row, int64_t top) {
  return reinterpret_cast<float*>(ids_of(rows, row) + top);
}

template <class T>
void write_floats(const float* from, int64_t n, const Tensor& to, int64_t first) {
  std::copy_n(from, n, to.as<T>() + first);
}
void write_stat(const float* from, int64_t n, const Tensor& to, int64_t first) {
  if (to.dtype == DType::f64)
    write_floats<double>(from, n, to, first);
  else
    write_floats<float>(from, n, to, first);
}

}  // namespace

TeacherApart::TeacherApart(const Setup& s)
    : teacher_(s.teacher),
      student_(s.student),
      own_(*s.student.teacher->apart),
      mesh_(s.mesh),
      memory_(s.states.memory()),
      top_(s.student.teacher->top),
      threads_(s.threads),
      links_(s.teacher.model, own_, s.mesh, nullptr) {
  if (own_.has_head())
    head_.emplace(HeadLogits::Of{.model = teacher_.model, .step = own_, .mesh = mesh_, .arena = s.states});
  if (finds()) found_ = s.rows.alloc(DType::i32, {own_.micro_batch_tokens(), row_width()});
  if (student_.has_head())
    rows_ = s.rows.alloc(DType::i32, {student_.order.num_micro_batches * student_.micro_batch_tokens(), row_width()});
}

// All ranks of tp have the same logits.
bool TeacherApart::finds() const { return own_.has_head() && place_of(own_.mesh, own_.rank).tp == 0; }

// The inverse of GradientOrder::global_of.
TeacherApart::Owner TeacherApart::owner_of(int64_t global) const {
  const GradientOrder& order = student_.order;
  if (order.reduces_each()) return {.dp = global % order.ranks, .micro_batch = global / order.ranks};
  return {.dp = global / order.num_micro_batches, .micro_batch = global % order.num_micro_batches};
}

void TeacherApart::run(const At& at, const LoadMicroBatch& load) {
  const int64_t all = student_.order.global_micro_batches(), at_once = own_.order.ranks;
  const int64_t rounds = (all + at_once - 1) / at_once;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t first = round * at_once;
    if (at.traffic == nullptr) {
      pass(at, load, std::min(first + own_.order.rank, all - 1));  // the last one again, for the others' sake
    } else if (round == 0) {
      const Traffic before = *at.traffic;
      pass(at, load, 0);
      at.traffic->add(at.traffic->since(before), rounds - 1);
    }
    exchange(first, std::min(first + at_once, all));
  }
}

void TeacherApart::pass(const At& at, const LoadMicroBatch& load, int64_t global) {
  const ForwardOnly forward{.model = teacher_.model,
                            .params = teacher_.params,
                            .step = own_,
                            .backend = at.backend,
                            .mesh = mesh_,
                            .staging = at.staging,
                            .links = &links_,
                            .states = head_ ? head_->states() : Tensor()};
  forward.score(
      [&](MicroBatch& b) {
        b.index = global;
        load(b);
      },
      at.evaluation);
  if (!head_) return;
  head_->each(at.backend, [&](int64_t first, const Tensor& logits) {
    if (at.traffic != nullptr || !found_) return;
    read_parts(*memory_, logits, [&](const Tensor& part, int64_t row) { find(part, first + row); });
  });
}

void TeacherApart::find(const Tensor& part, int64_t first) const {
  const auto find_rows = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const logits = logits_of(found_, first + i, top_);
      find_top(
          part, i, student_.teacher->loss.temperature,
          {.ids = {ids_of(found_, first + i), size_t(top_)}, .logits = {logits, size_t(top_)}, .lse = logits[top_]});
    }
  };
  if (threads_ <= 1) return find_rows(0, part.rows());
  parallel_for(part.rows(), threads_, 1, find_rows);
}

// Micro-batches [first, end) of the global batch, one of each data rank of the teacher. Receives come first, so that no
// order of arrival blocks.
void TeacherApart::exchange(int64_t first, int64_t end) {
  std::vector<Work> under_way;
  for (int64_t global = first; global < end && rows_; ++global)
    if (owner_of(global).dp == student_.order.rank) receive(global, under_way);
  if (found_ && first + own_.order.rank < end) send_found(first + own_.order.rank, under_way);
  for (Work& work : under_way) work.wait();
}

// Sequence by sequence; where both have whole ones, all at once.
std::vector<TeacherApart::Piece> TeacherApart::pieces(const SequenceCut& from, const SequenceCut& to) const {
  std::vector<Piece> all;
  const auto add = [&](const Piece& p) {
    if (p.rows <= 0) return;
    const bool follows =
        !all.empty() && all.back().from + all.back().rows == p.from && all.back().to + all.back().rows == p.to;
    if (follows)
      all.back().rows += p.rows;
    else
      all.push_back(p);
  };
  for (int64_t i = 0; i < student_.micro_batch_size; ++i) {
    int64_t from_row = i * from.rows();
    for (const Run& a : from.runs()) {
      int64_t to_row = i * to.rows();
      for (const Run& b : to.runs()) {
        const int64_t begin = std::max(a.first, b.first), end = std::min(a.end(), b.end());
        add({.from = from_row + begin - a.first, .to = to_row + begin - b.first, .rows = end - begin});
        to_row += b.count;
      }
      from_row += a.count;
    }
  }
  return all;
}

// To each rank of tp and cp with the student's head. What stays on this rank is copied by `receive`.
void TeacherApart::send_found(int64_t global, std::vector<Work>& under_way) const {
  const MeshSizes& there = student_.mesh;
  const int dp = int(owner_of(global).dp), head = stage_of_head(student_);
  for (int cp = 0; cp < there.cp; ++cp) {
    const std::vector<Piece> all = pieces(own_.sequences(), cut_of(student_, cp));
    for (int tp = 0; tp < there.tp; ++tp) {
      const int to = rank_at(there, {.dp = dp, .pp = head, .cp = cp, .tp = tp});
      if (to == own_.rank) continue;
      for (const Piece& p : all) under_way.push_back(mesh_.world->send(found_.slice_rows(p.from, p.rows), to));
    }
  }
}

void TeacherApart::receive(int64_t global, std::vector<Work>& under_way) const {
  const int dp = int(global % own_.order.ranks), head = stage_of_head(own_);
  const int64_t first = owner_of(global).micro_batch * student_.micro_batch_tokens();
  for (int cp = 0; cp < own_.mesh.cp; ++cp) {
    const int from = rank_at(own_.mesh, {.dp = dp, .pp = head, .cp = cp, .tp = 0});
    for (const Piece& p : pieces(cut_of(own_, cp), student_.sequences())) {
      const Tensor into = rows_.slice_rows(first + p.to, p.rows);
      if (from != own_.rank)
        under_way.push_back(mesh_.world->recv(into, from));
      else if (into.data != nullptr)
        std::memcpy(into.data, found_.slice_rows(p.from, p.rows).data, size_t(into.bytes()));
    }
  }
}

void TeacherApart::fill(int64_t micro_batch, const TopLogits& to) const {
  const int64_t tokens = student_.micro_batch_tokens();
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t row = micro_batch * tokens + i;
    const float* const logits = logits_of(rows_, row, top_);
    std::copy_n(ids_of(rows_, row), top_, to.ids.as<int32_t>() + i * top_);
    write_stat(logits, top_, to.logits, i * top_);
    write_stat(logits + top_, 1, to.lse, i);
  }
}

}  // namespace weft
