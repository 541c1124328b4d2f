#include "weft/pipeline/dataset.h"

#include <algorithm>
#include <set>

#include "weft/base/durable_file.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"
#include "weft/base/version.h"
#include "weft/pipeline/input_files.h"
#include "weft/pipeline/rule.h"
#include "weft/pipeline/stages.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;

StageResult run_stage(const std::string& name, const PipelineConfig& config, const StageResult* before,
                      const StageContext& context) {
  const fs::path folder = fs::path(config.run.dir) / name;
  if (name == "read") return run_read_stage(config, folder, context);
  WEFT_CHECK(before != nullptr, "{} has no stage before it", name);
  if (name == "filter") return run_filter_stage(config, *before, folder, context);
  if (name == "dedup") return run_dedup_stage(config, *before, folder, context);
  if (name == "decontaminate") return run_decontaminate_stage(config, *before, folder, context);
  return run_tokens_stage(config, *before, folder, context);
}

// A stage before the one that is asked for: it must be what this pipeline would make here, or the manifest would sign
// stages that do not belong together.
StageResult open_earlier_stage(const std::string& name, const PipelineConfig& config, const StageResult* before) {
  StageResult stage = open_stage(fs::path(config.run.dir) / name);
  const StageIdentity mine = name == "read"     ? read_identity(config)
                             : name == "filter" ? filter_identity(config, *before)
                             : name == "dedup"  ? dedup_identity(config, *before)
                                                : decontaminate_identity(config, *before);
  const auto differs = [&](const char* key, const nlohmann::json& value) {
    return stage.manifest.value(key, nlohmann::json()) != value;
  };
  const auto refuse = [&](const std::string& how) {
    throw FileError(fmt::format("{}: was made {}; run --stage {} first", stage.folder.string(), how, name));
  };
  if (before != nullptr && differs("inputs", mine.inputs)) refuse("of another " + before->folder.filename().string());
  if (differs("version", mine.version)) refuse("by another version of the stage");
  if (with_defaults(stage.manifest.value("parameters", nlohmann::json()), mine.parameters) != mine.parameters)
    refuse("by other parameters than those of the pipeline");
  if (const auto lost = lost_files(stage.folder, stage.manifest); !lost.empty())
    throw FileError(fmt::format("{}: is missing or of another size; run --stage {} first",
                                (stage.folder / lost.front()).string(), name));
  return stage;
}

// What the bytes depend on besides the inputs: processes that work together must agree on it.
nlohmann::json work_of(const PipelineConfig& config) {
  nlohmann::json work = parameters_of(config, stage_names(config));
  work.update(parameters_of(config, rule_names(config)));
  work.update(parameters_of(config, {"source", "read"}));
  for (const SourceConfig& s : config.sources) {
    work["copies"][s.name] = s.copies;
    if (s.weight) work["weights"][s.name] = *s.weight;
  }
  work["run.shard_mb"] = config.run.shard_mb;
  work["run.compression"] = config.run.compression;
  work["run.samples"] = config.run.samples;
  work["stages"] = stage_names(config);
  work["weft"] = kVersion;
  return work;
}

bool is_of_a_pipeline(const fs::path& folder) {
  std::error_code ignored;
  const auto has_stage = [&](const char* name) { return fs::exists(folder / name / "stage.json", ignored); };
  return std::any_of(std::begin(kStageNames), std::end(kStageNames), has_stage);
}

// A run that ended, or was killed, before its first stage had a stage.json leaves no more than these.
bool is_left_of_a_beginning(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (name == "run.lock" || name == "shards.lock" || name.starts_with("run.json")) return true;
  const auto unfinished = [](const auto& file) {
    return file.path().filename().string().starts_with("stage.json.tmp-");
  };
  return std::find(std::begin(kStageNames), std::end(kStageNames), name) != std::end(kStageNames) &&
         entry.is_directory() && std::all_of(fs::directory_iterator(entry), fs::directory_iterator(), unfinished);
}

bool has_files_of_others(const fs::path& folder) {
  return fs::exists(folder) &&
         !std::all_of(fs::directory_iterator(folder), fs::directory_iterator(), is_left_of_a_beginning);
}

// Its stages would stand among somebody's files, or within another dataset.
void refuse_folder_of_others(const fs::path& folder) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(folder)),
                 real = whole.has_filename() ? whole : whole.parent_path();
  for (fs::path above = real.parent_path(); above.has_relative_path(); above = above.parent_path())
    if (is_of_a_pipeline(above))
      throw FileError(fmt::format("{}: lies in the folder of another pipeline, {}; choose another run.dir",
                                  folder.string(), above.string()));
  if (!is_of_a_pipeline(real) && has_files_of_others(real))
    throw FileError(
        fmt::format("{}: holds files that no pipeline made; choose another run.dir, or move them", folder.string()));
}

void make_folder(const fs::path& folder) {
  try {
    refuse_folder_of_others(folder);
    fs::create_directories(folder);
  } catch (const fs::filesystem_error& e) {
    throw FileError(fmt::format("{}: cannot be used: {}; choose another run.dir", folder.string(), e.code().message()));
  }
}

// Without what differs between two machines that do the same: times of files, samples' wording stays.
nlohmann::json stage_in_manifest(const StageResult& stage) {
  nlohmann::json json = stage.manifest;
  json.erase("inputs");
  json["manifest"] = stage.hash;
  return json;
}

void write_manifest(const fs::path& folder, const std::vector<StageResult>& stages) {
  nlohmann::json manifest = {{"format", kFormat}, {"tool", kVersion}, {"stages", nlohmann::json::array()}};
  for (const StageResult& stage : stages) {
    if (stage.manifest.at("stage") == "read") manifest["inputs"] = stage.manifest.at("inputs");
    manifest["stages"].push_back(stage_in_manifest(stage));
  }
  manifest["version"] = to_hex(hash128(manifest.dump()));
  remove_unfinished(folder, "manifest.json");
  write_file_durably(folder / "manifest.json", manifest.dump(1) + "\n", kOwnName);
}

// Checks what other code relies on: lists of objects that have the fields it reads.
void check_stage(const JsonFields& stage, const std::string& where) {
  stage.string("stage");
  stage.integer("version", {});
  stage.object("parameters");
  counts_of_json(stage.object("counts").json(), where);
  if (stage.has("shards"))
    for (const auto& one : stage.list("shards", "a list of files")) {
      const JsonFields shard(one, where);
      shard.string("file");
      shard.string("hash");
    }
  if (!stage.has("files")) return;
  for (const auto& one : stage.list("files", "a list of token files")) {
    const JsonFields file(one, where);
    for (const char* key : {"prefix", "bin", "idx", "ids"}) file.string(key);
    for (const char* key : {"tokens", "documents"}) file.integer(key, {.min = 0});
  }
}

void check_manifest(const JsonFields& manifest, const std::string& where) {
  for (const auto& one : manifest.list("inputs", "a list of files")) {
    const JsonFields input(one, where);
    input.string("file");
    input.string("hash");
    input.integer("bytes", {.min = 0});
  }
  for (const auto& stage : manifest.list("stages", "a list of stages")) check_stage({stage, where}, where);
}

class Auditor {
 public:
  explicit Auditor(fs::path folder) : folder_(std::move(folder)) {}
  Audit run() {
    const Dataset dataset = open_dataset(folder_);
    const JsonFields top(dataset.manifest, (folder_ / "manifest.json").string());
    for (const auto& stage : dataset.manifest.at("stages")) this->stage(JsonFields(stage, "manifest.json"));
    for (const auto& input : dataset.manifest.at("inputs")) this->input(JsonFields(input, "manifest.json"));
    return std::move(audit_);
  }

 private:
  void stage(const JsonFields& stage) {
    const fs::path folder = folder_ / stage.string("stage");
    if (stage.has("manifest")) file(folder / "manifest.json", stage.string("manifest"));
    for (const std::string& name : added_files(folder, stage.json()))
      audit_.problems.push_back((folder / name).string() + ": is no file of the dataset");
    if (stage.has("others")) {
      const JsonFields others = stage.object("others");
      for (const auto& one : others.json().items()) file(folder / one.key(), others.string(one.key()));
    }
    if (const auto* shards = stage.find("shards"))
      for (const auto& shard : *shards) {
        const JsonFields fields(shard, "manifest.json");
        file(folder / fields.string("file"), fields.string("hash"));
      }
    if (const auto* files = stage.find("files"))
      for (const auto& one : *files) {
        const JsonFields fields(one, "manifest.json");
        const std::string prefix = fields.string("prefix");
        file(folder / (prefix + ".bin"), fields.string("bin"));
        file(folder / (prefix + ".idx"), fields.string("idx"));
        file(folder / (prefix + ".documents"), fields.string("ids"));
        if (fields.has("mask")) file(folder / (prefix + ".mask"), fields.string("mask"));
      }
  }
  void file(const fs::path& path, const std::string& hash) {
    ++audit_.files;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error) return audit_.problems.push_back(path.string() + ": is missing");
    audit_.bytes += int64_t(size);
    if (hash_of_file(path) != hash) audit_.problems.push_back(path.string() + ": is not the file that was written");
  }
  void input(const JsonFields& input) {
    const std::string path = input.string("file");
    if (!fs::exists(path)) return audit_.notes.push_back(path + ": the input is no longer there");
    file(path, input.string("hash"));
  }

  fs::path folder_;
  Audit audit_;
};

using Table = std::map<std::string, std::string>;  // what is compared, by name

void compare(const Table& a, const Table& b, std::vector<std::string>& lines) {
  std::set<std::string> names;
  for (const auto& one : a) names.insert(one.first);
  for (const auto& one : b) names.insert(one.first);
  for (const std::string& name : names) {
    const auto in_a = a.find(name), in_b = b.find(name);
    if (in_b == b.end())
      lines.push_back(fmt::format("{}: only in the first ({})", name, in_a->second));
    else if (in_a == a.end())
      lines.push_back(fmt::format("{}: only in the second ({})", name, in_b->second));
    else if (in_a->second != in_b->second)
      lines.push_back(fmt::format("{}: {} -> {}", name, in_a->second, in_b->second));
  }
}

std::string as_text(const nlohmann::json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// A source's parameters are keyed by its name: inserting another source would shift indices.
void add_parameters(const std::string& stage, const nlohmann::json& parameters, Table& t) {
  for (const auto& [key, value] : parameters.items()) {
    if (key != "source" || !value.is_array()) {
      t[stage + " " + key] = as_text(value);
      continue;
    }
    for (const auto& source : value) {
      const JsonFields fields(source, "manifest.json");
      const std::string name = fields.string("name", "");
      for (const auto& [of, one] : source.items()) t[fmt::format("{} source {}.{}", stage, name, of)] = as_text(one);
    }
  }
}

Table table_of(const nlohmann::json& manifest) {
  Table t;
  for (const auto& input : manifest.at("inputs"))
    t["input " + input.at("file").get<std::string>()] = input.at("hash").get<std::string>();
  for (const auto& stage : manifest.at("stages")) {
    const std::string name = stage.at("stage");
    t[name + " version"] = shown(stage.at("version"));
    add_parameters(name, stage.at("parameters"), t);
    for (const auto& [key, value] : stage.at("counts").items()) {
      if (!value.is_object()) t[fmt::format("{} {}", name, key)] = value.dump();
      if (value.is_object())
        for (const auto& [reason, n] : value.items())
          t[reason == "tokens.train"   ? "tokens to train on"
            : reason == "tokens.valid" ? "tokens held out"
                                       : fmt::format("{} {} {}", name, key, reason)] = n.dump();
    }
  }
  return t;
}

}  // namespace

std::vector<std::string> stage_names(const PipelineConfig& config) {
  std::vector<std::string> names;
  for (const char* name : kStageNames)
    if (const std::string n = name; n == "read" || (n == "filter" ? !rule_names(config).empty() : config.has(n)))
      names.push_back(n);
  return names;
}

bool run_pipeline(const PipelineConfig& config, const std::string& stage, const StageContext& given,
                  const std::function<void(const StageResult&)>& done) {
  const std::vector<std::string> names = stage_names(config);
  if (!stage.empty() && std::find(names.begin(), names.end(), stage) == names.end()) {
    const std::string near = nearest_name(stage, names);
    throw ConfigError(fmt::format("{} is no stage of this pipeline, which has {}{}", in_quotes(stage),
                                  fmt::join(names, ", "), near.empty() ? "" : "; did you mean " + near + "?"));
  }
  const fs::path folder = config.run.dir;
  if (stage.empty() || stage == "read" || given.helps)  // later stages do without the inputs
    for (const SourceConfig& source : config.sources) refuse_own_output(source.files, folder);
  if (config.has("decontaminate")) refuse_own_output(config.decontaminate.files, folder);
  if (!given.helps) make_folder(folder);
  given.progress.begin(given.helps ? "waiting for the run that leads" : "waiting for helpers of an earlier run", 0);
  Team team(folder, {.helps = given.helps,
                     .leader_wait_s = given.leader_wait_s,
                     .again = given.again,
                     .work = work_of(config),
                     .stop = given.stop});
  if (team.came_late()) return false;
  StageContext context = given;
  context.team = &team;
  std::vector<StageResult> results;
  for (const std::string& name : names) {
    const StageResult* before = results.empty() ? nullptr : &results.back();
    if (stage.empty() || stage == name || context.helps) {
      results.push_back(run_stage(name, config, before, context));
      done(results.back());
      if (stage == name && (name != names.back() || context.helps)) return true;
    } else {
      results.push_back(open_earlier_stage(name, config, before));
    }
  }
  if (!context.helps) write_manifest(folder, results);
  return true;
}

Dataset open_dataset(const fs::path& folder) {
  const fs::path file = folder / "manifest.json";
  if (!fs::exists(file))
    throw FileError(fmt::format("{}: no dataset: there is no manifest.json; `weft data run` writes it at its end",
                                folder.string()));
  Dataset d{.manifest = read_json_file(file, kManifest), .version = ""};
  d.version = JsonFields(d.manifest, file.string()).string("version");
  nlohmann::json content = d.manifest;
  content.erase("version");
  if (to_hex(hash128(content.dump())) != d.version)
    throw FileError(file.string() + ": was changed: its version is not the hash of what it says");
  check_manifest({d.manifest, file.string()}, file.string());
  return d;
}

Audit audit_dataset(const fs::path& folder) { return Auditor(folder).run(); }

std::vector<std::string> differences(const Dataset& a, const Dataset& b) {
  std::vector<std::string> lines;
  compare(table_of(a.manifest), table_of(b.manifest), lines);
  if (lines.empty() && a.version != b.version)
    lines.emplace_back("the same inputs, parameters and counts, but other bytes");
  return lines;
}

}  // namespace weft
