#include "weft/pipeline/provenance.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/mapped_file.h"
#include "weft/chat/conversation.h"
#include "weft/data/id_view.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokens = "tokens";    // the stage and its folder
constexpr size_t kDuplicatesWithOrigin = 5;  // of a document: each may be in another shard

fs::path without_suffix(fs::path path) {
  if (path.extension() == ".bin" || path.extension() == ".idx") path.replace_extension();
  return path;
}

void refuse_changed(const fs::path& file, const std::string& expected, const Dataset& dataset, const fs::path& folder) {
  if (fs::exists(file) && hash_of(MappedFile(file)) == expected) return;
  throw FileError(fmt::format(
      "{}: {} the file of dataset {}, version {}; restore it, or run the pipeline again (`weft "
      "data audit {}` looks at all files)",
      file.string(), fs::exists(file) ? "is not" : "is missing:", folder.string(), dataset.version, folder.string()));
}

// The files of a prefix are those of the manifest, as far as `quick` tells.
void check_files(const JsonFields& file, const fs::path& prefix, const Dataset& dataset, const fs::path& folder) {
  const JsonFields quick = file.object("quick");
  for (const char* suffix : {"bin", "idx", "mask"})
    if (quick.has(suffix)) refuse_changed(prefix.string() + "." + suffix, quick.string(suffix), dataset, folder);
  if (fs::exists(prefix.string() + ".mask") && !quick.has("mask"))
    throw FileError(fmt::format("{}.mask: dataset {} has no such file; remove it", prefix.string(), folder.string()));
}

// "length.min_words" and the like, to the names of rules.
std::vector<std::string> rules_of(const nlohmann::json& parameters) {
  std::set<std::string> names;
  for (const auto& one : parameters.items()) names.insert(one.key().substr(0, one.key().find('.')));
  return {names.begin(), names.end()};
}

// A weft that did not keep the texts has the file's hash: the file itself, where it is there still.
std::map<std::string, std::string> templates_in(const JsonFields& stage, const std::string& manifest) {
  std::map<std::string, std::string> templates;
  if (stage.has("chat_templates")) {
    const JsonFields texts = stage.object("chat_templates");
    for (const auto& one : texts.json().items()) templates[one.key()] = texts.string(one.key());
    return templates;
  }
  const JsonFields parameters = stage.object("parameters");
  if (!parameters.has("chat_template") || !parameters.object("chat_template").has("template")) return templates;
  const fs::path file = parse_json(parameters.string("tokens.chat_template"), manifest).get<std::string>();
  std::error_code ignored;
  if (!fs::exists(file, ignored) || hash_of_file(file) != parameters.object("chat_template").string("template"))
    return templates;
  return chat::chat_template_texts("byte", {.file = file});
}

// From the tokens stage in the manifest.
DatasetTokenizer tokenizer_in(const JsonFields& stage, const fs::path& folder) {
  const JsonFields parameters = stage.object("parameters");
  const nlohmann::json name = parse_json(parameters.string("tokens.tokenizer"), (folder / "manifest.json").string());
  if (!name.is_string()) parameters.fail("tokens.tokenizer", "a text in quotes");
  return {.folder = folder,
          .name = name,
          .fingerprint = parameters.string("tokenizer"),
          .vocab_size = stage.has("vocab_size") ? stage.integer("vocab_size", {.min = 1}) : 0,
          .chat_templates = templates_in(stage, (folder / "manifest.json").string())};
}

}  // namespace

std::optional<DatasetFile> find_dataset(const fs::path& tokens) { return Datasets().find(tokens); }

std::optional<Datasets::Listed> Datasets::listed(const fs::path& tokens) {
  std::error_code ignored;  // with links and .. resolved: where it lies, not how that is spelled
  const fs::path named = fs::absolute(without_suffix(tokens)),
                 real = fs::weakly_canonical(named.parent_path(), ignored);
  const fs::path prefix = (real.empty() ? named.parent_path() : real) / named.filename();
  const fs::path folder = prefix.parent_path().parent_path();
  if (prefix.parent_path().filename() != kTokens || !fs::exists(folder / "manifest.json", ignored)) return {};
  if (!open_.count(folder)) open_.emplace(folder, open_dataset(folder));
  const Dataset& dataset = open_.at(folder);
  const std::string where = (folder / "manifest.json").string();
  const JsonFields manifest(dataset.manifest, where);
  for (const auto& stage : manifest.list("stages", "a list of stages")) {
    const auto* files = JsonFields(stage, where).find("files");
    if (files == nullptr) continue;
    for (const auto& file : *files)
      if (JsonFields(file, where).string("prefix") == prefix.filename())
        return Listed{.prefix = prefix, .folder = folder, .dataset = dataset, .stage = stage, .file = file};
  }
  return {};  // a file that somebody put there
}

std::optional<DatasetFile> Datasets::find(const fs::path& tokens) {
  const auto found = listed(tokens);
  if (!found) return {};
  const JsonFields file(found->file, (found->folder / "manifest.json").string());
  if (file.has("quick")) check_files(file, found->prefix, found->dataset, found->folder);
  return DatasetFile{.folder = found->folder, .prefix = found->prefix.filename(), .version = found->dataset.version};
}

std::optional<DatasetTokenizer> Datasets::tokenizer_of(const fs::path& tokens) {
  const auto found = listed(tokens);
  if (!found) return {};
  return tokenizer_in(JsonFields(found->stage, (found->folder / "manifest.json").string()), found->folder);
}

Provenance::Provenance(DatasetFile file) : file_(std::move(file)) {
  const Dataset dataset = open_dataset(file_.folder);
  const std::string where = (file_.folder / "manifest.json").string();
  for (const auto& one : dataset.manifest.at("stages")) {
    const JsonFields stage(one, where);
    const std::string name = stage.string("stage");
    if (name == kTokens) {
      const DatasetTokenizer tokenizer = tokenizer_in(stage, file_.folder);
      tokenizer_ = tokenizer.name;
      fingerprint_ = tokenizer.fingerprint;
      check_ids(stage);
      continue;
    }
    Stage& s = stages_.emplace_back(Stage{.name = name, .shards = {}, .rules = {}, .duplicates = {}});
    if (stage.has("others")) s.duplicates = stage.object("others").string("duplicates.jsonl", "");
    if (name == "filter") s.rules = rules_of(stage.object("parameters").json());
    if (const auto* shards = stage.find("shards"))
      for (const auto& shard : *shards) {
        const JsonFields fields(shard, where);
        s.shards.push_back({fields.string("file"), fields.string("hash")});
      }
  }
  if (stages_.empty()) throw FileError(where + ": no stage has documents");
}

// Other ids would name other documents. They are not in `quick`, as training does not read them.
void Provenance::check_ids(const JsonFields& tokens) const {
  const std::string manifest = (file_.folder / "manifest.json").string();
  const auto* files = tokens.find("files");
  if (files == nullptr) tokens.fail("files", "a list");
  for (const auto& one : *files) {
    const JsonFields file(one, manifest);
    if (file.string("prefix") != file_.prefix) continue;
    const fs::path ids = file_.folder / kTokens / (file_.prefix + ".documents");
    if (!fs::exists(ids) || hash_of_file(ids) != file.string("ids"))
      throw FileError(fmt::format("{}: {}; restore it, or run the pipeline again", ids.string(),
                                  fs::exists(ids) ? "is not the file of which " + manifest + " speaks" : "is missing"));
  }
}

DocumentId Provenance::document(int64_t number) const {
  const MappedFile file(file_.folder / kTokens / (file_.prefix + ".documents"));
  uint64_t id = 0;
  if (number < 0 || number >= int64_t(file.bytes().size() / sizeof id))
    throw FileError(fmt::format("{}: has no document {}", file.path().string(), number));
  std::memcpy(&id, file.bytes().data() + size_t(number) * sizeof id, sizeof id);
  return DocumentId::of_number(id);
}

// Those of these documents that the stage has, in their order.
std::vector<Provenance::Found> Provenance::documents_of(const Stage& stage, const std::vector<DocumentId>& ids) const {
  std::map<uint32_t, std::map<uint32_t, Found>> wanted;  // shard, place
  for (const DocumentId& id : ids) wanted[id.shard][id.place] = {};
  for (auto& of_shard : wanted) {
    const uint32_t shard = of_shard.first;
    std::map<uint32_t, Found>& places = of_shard.second;
    if (shard >= stage.shards.size())
      throw FileError(fmt::format("{}: stage {} has no shard {}", file_.folder.string(), stage.name, shard));
    const fs::path path = file_.folder / stage.name / stage.shards[shard].file;
    if (!fs::exists(path)) {
      for (auto& one : places) one.second.gone = path.string();
      continue;
    }
    if (hash_of_file(path) != stage.shards[shard].hash)
      throw FileError(fmt::format("{}: is not the shard of which {} speaks; run the pipeline again", path.string(),
                                  (file_.folder / "manifest.json").string()));
    auto next = places.begin();  // documents are in order
    std::string mark = fmt::format("\"id\":\"{}.{}\"", shard, next->first);
    for_each_line_of(path, [&](std::string_view line, int64_t number) {
      if (next == places.end() || line.find(mark) == std::string_view::npos) return;
      Document d = document_of_line(line, fmt::format("{}: line {}", path.string(), number));
      if (d.id.place != next->first) return;
      next->second.document = std::move(d);
      if (++next != places.end()) mark = fmt::format("\"id\":\"{}.{}\"", shard, next->first);
    });
    if (next != places.end())
      throw FileError(fmt::format("{}: has no document {}.{}", path.string(), shard, next->first));
  }
  std::vector<Found> all;
  for (const DocumentId& id : ids) all.push_back(wanted[id.shard][id.place]);
  return all;
}

std::vector<DocumentStory> Provenance::stories(const std::vector<DocumentId>& ids) const {
  std::vector<DocumentStory> all(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) all[i].id = ids[i];
  std::vector<bool> known(ids.size(), false);  // the text as the stage before left it
  for (const Stage& stage : stages_) {
    std::vector<Found> found = documents_of(stage, ids);
    const bool first = &stage == &stages_.front();
    for (size_t i = 0; i < ids.size(); ++i) {
      DocumentStory& story = all[i];
      std::optional<Document>& document = found[i].document;
      StagePassed passed{.stage = stage.name, .rules = stage.rules, .changed = {}};
      if (document && known[i]) passed.changed = document->text != story.text;
      if (!first) story.passed.push_back(std::move(passed));
      if (document) story.text = document->text;
      if (!document) story.gone.insert(found[i].gone);
      known[i] = document.has_value();
      if (first) story.read = std::move(document);
    }
  }
  add_duplicates(ids, all);
  return all;
}

void Provenance::add_duplicates(const std::vector<DocumentId>& ids, std::vector<DocumentStory>& stories) const {
  // A folder of a stage that is no longer in the pipeline may be there still.
  const auto dedup = std::find_if(stages_.begin(), stages_.end(), [](const Stage& s) { return s.name == "dedup"; });
  if (dedup == stages_.end()) return;
  const fs::path path = file_.folder / "dedup" / "duplicates.jsonl";
  if (!fs::exists(path)) {
    for (DocumentStory& story : stories) story.gone.insert(path.string());
    return;
  }
  if (!dedup->duplicates.empty() && hash_of_file(path) != dedup->duplicates)
    throw FileError(fmt::format("{}: is not the file of which {} speaks; run the pipeline again", path.string(),
                                (file_.folder / "manifest.json").string()));
  std::map<std::string, std::vector<MergedDuplicate>> merged;  // by the document that was kept
  for (const DocumentId& id : ids) merged[id.text()];
  const MappedFile file(path);
  for (std::string_view rest = file.text(); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    constexpr std::string_view kMark = "\"kept\":\"";
    const size_t at = line.find(kMark);
    if (at == std::string_view::npos) continue;
    const size_t begin = at + kMark.size(), end = std::min(line.find('"', begin), line.size());
    const auto found = merged.find(std::string(line.substr(begin, end - begin)));
    if (found == merged.end()) continue;
    const nlohmann::json json = parse_json(line, path.string());
    const JsonFields fields(json, path.string());
    MergedDuplicate one{.id = parse_document_id(fields), .by = fields.string("by"), .jaccard = {}, .origin = {}};
    if (fields.has("jaccard")) one.jaccard = fields.number("jaccard", {.min = 0, .max = 1});
    found->second.push_back(std::move(one));
  }
  std::vector<DocumentId> shown;
  for (const auto& one : merged)
    for (size_t i = 0; i < std::min(one.second.size(), kDuplicatesWithOrigin); ++i) shown.push_back(one.second[i].id);
  const std::vector<Found> found = documents_of(stages_.front(), shown);
  size_t next = 0;
  for (auto& one : merged)
    for (size_t i = 0; i < std::min(one.second.size(), kDuplicatesWithOrigin); ++i)
      if (const auto& document = found[next++].document) one.second[i].origin = document->origin;
  for (size_t i = 0; i < ids.size(); ++i) stories[i].duplicates = merged[ids[i].text()];
}

}  // namespace weft
