#include "weft/plan/teacher.h"

#include <algorithm>
#include <filesystem>

#include "weft/base/mapped_file.h"
#include "weft/data/teacher_logits.h"
#include "weft/plan/layout.h"
#include "weft/plan/run_plan.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string named(const Recipe& r) { return fmt::format("objective.teacher = \"{}\"", r.objective.teacher); }

// The recipe as it is for the teacher, whose blocks are others. A dense one has no experts to deal out over ep, and
// another may have its own ep, which is judged apart.
Recipe recipe_of_teacher(Recipe r, const ModelSpec& teacher) {
  r.parallel.pipeline_layout.clear();
  if (!teacher.has_experts() || r.parallel.frozen_ep > 0) r.parallel.ep = 1;
  return r;
}

// What is said of a layout's axes, in the keys by which a teacher has its own.
std::string in_its_keys(std::string text) {
  for (const char* axis : {"tp", "pp", "cp", "ep"}) {
    const std::string key = fmt::format("parallel.{} = ", axis), its = fmt::format("parallel.teacher_{} = ", axis);
    for (size_t at = text.find(key); at != text.npos; at = text.find(key, at + its.size()))
      text.replace(at, key.size(), its);
  }
  return text;
}

void check_teacher_apart(const Recipe& r, const ModelSpec& teacher) {
  if (r.objective.top_k > teacher.vocab_size)
    throw ConfigError(
        fmt::format("objective.top_k = {0} cannot run: {1} has {2} tokens; the nearest that works: "
                    "objective.top_k = {2}",
                    r.objective.top_k, named(r), teacher.vocab_size));
  try {
    check_layout(recipe_of_teacher_apart(r), teacher);
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("{}, which has a layout of its own: {}", named(r), in_its_keys(e.what())));
  }
}

// data.tokenizer, or else the model's folder, says what ids mean to the student. Most often the files are equal, and
// need not be understood. Datasets and texts are compared when they are opened (judge_tokenizer).
void refuse_other_tokenizer(const Recipe& r) {
  if (r.data.tokenizer == "byte")
    return require_teacher_tokenizer(r, {make_byte_tokenizer()->fingerprint()}, "data.tokenizer is \"byte\"");
  const fs::path student = find_tokenizer(fs::exists(r.data.tokenizer) ? r.data.tokenizer : r.model.path),
                 teacher = find_tokenizer(r.objective.teacher);
  if (student.empty() || teacher.empty() || MappedFile(student).text() == MappedFile(teacher).text()) return;
  require_teacher_tokenizer(r, tokenizer_fingerprints(student), fmt::format("the student's is {}", student.string()));
}

}  // namespace

std::shared_ptr<const HfConfig> read_teacher(const Recipe& r) {
  const std::string& path = r.objective.teacher;
  if (!fs::exists(path))
    throw FileError(fmt::format("{} does not exist, seen from {}", named(r), fs::current_path().string()));
  require_no_file_of_weights(path, "objective.teacher");
  require_no_run_folder(path, "objective.teacher");
  HfConfig config = read_hf_config(path);
  if (config.adapter)
    throw ConfigError(
        fmt::format("{} is an adapter of {}: merge the two first (weft merge)", named(r), config.adapter->base));
  require_vocabulary_head(config.spec, named(r));
  refuse_other_tokenizer(r);
  config.spec.dropout = {};
  ExpertsSpec& e = config.spec.experts;
  e.aux_loss_coef = e.global_aux_loss_coef = e.z_loss_coef = 0;
  return std::make_shared<const HfConfig>(std::move(config));
}

void require_teacher_tokenizer(const Recipe& r, const std::vector<std::string>& fingerprints, const std::string& what) {
  if (r.objective.teacher.empty()) return;  // it was compared when its logits were stored
  const fs::path teacher = find_tokenizer(r.objective.teacher);
  if (teacher.empty()) return;
  const std::vector<std::string> own = tokenizer_fingerprints(teacher);
  if (std::find_first_of(own.begin(), own.end(), fingerprints.begin(), fingerprints.end()) != own.end()) return;
  throw ConfigError(
      fmt::format("{} cannot run: it has the tokenizer {}, and {}: ids do not mean the same to both; the nearest that "
                  "works: a teacher of the student's family with the same tokenizer",
                  named(r), teacher.string(), what));
}

void check_teacher(const Recipe& r, const ModelSpec& student, const HfConfig& config) {
  const ModelSpec& teacher = config.spec;
  if (teacher.vocab_size != student.vocab_size)
    throw ConfigError(
        fmt::format("{} cannot run: it has a vocabulary of {}, and model.path = \"{}\" one of {}; the nearest that "
                    "works: a teacher and a student with the same vocab_size in their config.json",
                    named(r), teacher.vocab_size, r.model.path, student.vocab_size));
  if (teacher.learned_positions && r.train.seq_length > teacher.max_positions)
    throw ConfigError(fmt::format("train.seq_length = {}: {} has a table of {} positions; use at most that",
                                  r.train.seq_length, named(r), teacher.max_positions));
  if (teacher_axes_of(r)) return check_teacher_apart(r, teacher);
  try {
    check_frozen_experts(r, teacher);
    check_layout(recipe_of_teacher(r, teacher), teacher);
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("{}, which is cut as the student is{}: {}", named(r),
                                  r.parallel.frozen_ep > 0 ? " but for its experts" : "", e.what()));
  }
}

int64_t read_stored_top(const Recipe& r, const ModelSpec& student) {
  const std::string& path = r.objective.teacher_logits;
  if (!fs::exists(path))
    throw FileError(
        fmt::format("objective.teacher_logits = \"{}\" does not exist, seen from {}; `weft teacher-logits` "
                    "makes it",
                    path, fs::current_path().string()));
  const TeacherLogitsSpec spec = TeacherLogits(path).spec();
  const auto refuse = [&](const std::string& why, const std::string& nearest) {
    throw ConfigError(fmt::format("objective.teacher_logits = \"{}\" cannot run: {}; the nearest that works: {}", path,
                                  why, nearest));
  };
  const std::string again = "a file made for this recipe: `weft teacher-logits`";
  if (spec.vocab_size != student.vocab_size)
    refuse(fmt::format("its teacher has a vocabulary of {}, and model.path = \"{}\" one of {}", spec.vocab_size,
                       r.model.path, student.vocab_size),
           "a teacher and a student with the same vocab_size in their config.json");
  if (spec.seq_length != r.train.seq_length)
    refuse(fmt::format("it was made with train.seq_length = {}, and the recipe has {}", spec.seq_length,
                       r.train.seq_length),
           fmt::format("train.seq_length = {}, or {}", spec.seq_length, again));
  if (spec.temperature != r.objective.temperature)
    refuse(fmt::format("it was made with objective.temperature = {}, and the recipe has {}", spec.temperature,
                       r.objective.temperature),
           fmt::format("objective.temperature = {}, or {}", spec.temperature, again));
  return spec.top;
}

Distillation teacher_loss_of(const Recipe& r) {
  return {.temperature = r.objective.temperature,
          .alpha = r.objective.alpha,
          .reverse = r.objective.divergence == DivergenceChoice::reverse};
}

Recipe recipe_of_teacher_apart(const Recipe& recipe) {
  Recipe r = recipe;
  const auto& p = recipe.parallel;
  const TeacherAxes axes = teacher_axes_of(recipe).value();
  const int64_t ranks = p.dp * p.tp * p.pp * p.cp;
  r.parallel = {
      .dp = ranks / (axes.tp * axes.pp * axes.cp), .tp = axes.tp, .pp = axes.pp, .cp = axes.cp, .ep = axes.ep};
  // Groups that exchange heads are the student's: their size says nothing of another cp.
  const bool groups = p.cp_comm_type == CpCommType::a2a_p2p && axes.cp != p.cp;
  r.parallel.cp_comm_type = groups ? CpCommType::p2p : p.cp_comm_type;
  r.parallel.cp_a2a_size = groups ? 0 : p.cp_a2a_size;
  r.parallel.order = p.order;
  r.parallel.sequence_parallel = false;  // every rank of tp has all rows of what the head is given
  r.train.objective = ObjectiveKind::cross_entropy;
  r.train.global_batch_size = r.train.micro_batch_size * r.parallel.dp;
  return r;
}

namespace {

// The forward pass of one of its micro-batches.
StepSpec step_of_teacher_apart(const Recipe& recipe, const ModelSpec& teacher, int rank) {
  StepSpec step = step_of(recipe_of_teacher_apart(recipe), teacher, rank);
  step.schedule = {};
  step.evaluates = step.saves_beside = step.finds_likeliest = step.counts_experts = step.predicts_further = false;
  step.writes = 0;
  return step;
}

}  // namespace

TeacherSpec teacher_spec_of(const Recipe& r, const ModelSpec& teacher, const StepSpec& student) {
  if (teacher_axes_of(r)) {
    const auto apart = std::make_shared<const StepSpec>(step_of_teacher_apart(r, teacher, student.rank));
    return {.frozen = {teacher, apart->model}, .loss = teacher_loss_of(r), .top = r.objective.top_k, .apart = apart};
  }
  TransformerPlan plan = student.model;
  const Recipe own = recipe_of_teacher(r, teacher);
  plan.layers = layer_plan_of(own, teacher);
  plan.layers.logits_bytes = student.model.layers.logits_bytes;
  plan.recompute_blocks = false;
  plan.parts = parts_of(own, teacher, place_of(student.mesh, student.rank).pp);
  return {.frozen = {teacher, plan}, .loss = teacher_loss_of(r)};
}

}  // namespace weft
