#include "weft/train/train_phases.h"

#include <stdio.h>

#include <algorithm>

#include "weft/base/is_there.h"
#include "weft/train/local_resume.h"
#include "weft/train/rank_plan.h"

namespace weft {
namespace {

// The data of each mix. What is open already is the first one's.
std::vector<RunData> open_mixes(const RanksSetup& setup, const std::vector<RunSpan>& spans, const ProcessMesh& mesh) {
  std::vector<RunData> mixes;
  // This rank may be none of another layout; what the data is judged by is the same on all.
  const auto model_of = [&](const RunSpan& span) {
    const bool is_here = span.layout_from == layout_from(setup.recipe);
    return prepare_run(span.recipe, is_here ? mesh.world->rank() : 0).model;
  };
  if (setup.rows != nullptr && setup.rows->train) mixes.push_back(*setup.rows);
  for (const RunSpan& span : spans)
    if (span.mix == int64_t(mixes.size()))
      mixes.push_back(in_phase(span, spans.size() == 1, [&] {
        return open_rank_data(span.recipe, model_of(span), *mesh.world, setup.terminal_fd, span.begun);
      }));
  return mixes;
}

// That a run which goes on behind the beginning of a phase still has the reference that it began with.
void require_own_references(const std::vector<RunSpan>& spans, int64_t steps_done) {
  for (const RunSpan& span : spans)
    if (span.own_reference > 0 && span.own_reference < steps_done && !is_there(span.recipe.objective.reference))
      throw FileError(fmt::format(
          "{}: the reference is the checkpoint {}, which is not there; put it back, or name a copy of it in "
          "a run of its own (objective.reference)",
          name_of(span), span.recipe.objective.reference));
}

// Whether a span begins with a checkpoint of the weights behind the one before it: its reference, or what it reads of a
// model with other heads.
bool needs_checkpoint(const RunSpan& before, const RunSpan& span) {
  return (span.own_reference > 0 && span.own_reference == span.first_step) || changes_heads(before.recipe, span.recipe);
}

bool ends_layout(const std::vector<RunSpan>& spans, size_t at) {
  return at + 1 < spans.size() && spans[at + 1].layout_from != spans[at].layout_from;
}

// The end of a span, on the layout of the one behind it: no step is left of it.
RunSpan end_of(const RunSpan& span, const RunSpan& next) {
  RunSpan end = span;
  end.recipe = on_layout_of(span.recipe, next.recipe);
  end.first_sample += span.samples_at(span.end_step) - span.samples;
  end.samples = span.samples_at(span.end_step);
  end.first_step = span.end_step;
  end.layout_from = next.layout_from;
  return end;
}

// What a process has of the span whose checkpoint it goes on from: of another layout, its end alone. None: it is of
// another layout than the newest checkpoint, which was found damaged.
std::optional<RunSpan> first_span(const std::vector<RunSpan>& spans, size_t at, int64_t done, int64_t begun) {
  if (spans[at].layout_from == begun) return spans[at];
  if (done < spans[at].end_step || at + 1 == spans.size() || spans[at + 1].layout_from != begun) return {};
  return end_of(spans[at], spans[at + 1]);
}

}  // namespace

Trainer::Setup trainer_setup(const RanksSetup& setup, const ProcessMesh& mesh, RankSigns& signs) {
  return {.recipe = setup.recipe,
          .machine = setup.machine.of_rank(mesh.world->rank()),
          .mesh = mesh,
          .stop = setup.stop,
          .terminal_fd = setup.terminal_fd,
          .heartbeat = setup.heartbeat,
          .signs = &signs,
          .islands = setup.islands};
}

RunEnd train_phases(const RanksSetup& setup, const std::vector<RunSpan>& all, const ProcessMesh& mesh,
                    RankSigns& signs) {
  const Machine& machine = setup.machine.of_rank(mesh.world->rank());
  const std::vector<RunData> mixes = open_mixes(setup, all, mesh);
  const FoundCheckpoint found = find_state_to_resume(setup.recipe, *mesh.world, machine.threads);
  const int64_t done = found.path ? read_progress(*found.path).step : 0;
  require_own_references(all, done);
  // Those that later phases have are made before the first step, but for references that the run itself makes.
  const auto references_of = [&](const RunSpan& span) {
    return in_phase(span, all.size() == 1, [&] {
      return prepare_references(span.recipe, mixes[size_t(span.mix)], machine, mesh, setup.terminal_fd);
    });
  };
  // A checkpoint is of the span that trained its last step.
  size_t at = span_of(all, std::max<int64_t>(0, done - 1));
  const std::optional<RunSpan> first = first_span(all, at, done, layout_from(setup.recipe));
  if (!first) {
    for (const std::string& note : found.notes)
      if (mesh.world->rank() == 0) ::dprintf(setup.terminal_fd, "%s\n", note.c_str());
    return RunEnd::stopped;  // the next process begins with the layout of what is whole
  }
  std::vector<RunSpan> spans = all;
  spans[at] = *first;
  for (size_t later = at; later < spans.size() && spans[later].layout_from == first->layout_from; ++later)
    if (spans[later].own_reference <= done) references_of(spans[later]);  // a checkpoint of before is there
  std::optional<CarriedRun> carried;
  for (;; ++at) {
    const RunSpan& span = spans[at];
    const bool keeps_end = at + 1 < spans.size() && needs_checkpoint(span, spans[at + 1]);
    Trainer::Setup own = trainer_setup(setup, mesh, signs);
    own.data = &mixes[size_t(span.mix)];
    own.references = references_of(span);
    own.phases = {.span = &span,
                  .keeps_end = keeps_end,
                  .ends_layout = ends_layout(spans, at),
                  .found = &found,
                  .carried = carried ? &*carried : nullptr};
    Trainer trainer(plan_of_rank(span.recipe, *setup.machine.workspace_model, *mesh.world), own);
    const RunEnd end = trainer.run();
    if (end != RunEnd::span_done) return end;
    carried.emplace(trainer.take_carried());
  }
}

}  // namespace weft
