#include "weft/pipeline/report.h"

#include <algorithm>

#include "weft/base/json.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr size_t kShownBytes = 300;

std::map<std::string, int64_t> named_counts(const JsonFields& fields) {
  std::map<std::string, int64_t> counts;
  for (const auto& [name, value] : fields.json().items()) counts[name] = fields.integer(name, {.min = 0});
  return counts;
}

}  // namespace

void Counts::add(const Counts& o) {
  documents_in += o.documents_in;
  documents_out += o.documents_out;
  bytes_in += o.bytes_in;
  bytes_out += o.bytes_out;
  for (const auto& [name, n] : o.dropped) dropped[name] += n;
  for (const auto& [name, n] : o.contaminated) contaminated[name] += n;
  for (const auto& [name, n] : o.changed) changed[name] += n;
}

void ShardReport::show(Sample sample, int64_t most) {
  const auto same = [&](const Sample& s) { return s.reason == sample.reason; };
  if (std::count_if(samples.begin(), samples.end(), same) >= most) return;
  if (sample.text.size() > kShownBytes) {
    sample.text.resize(kShownBytes);
    sample.text.resize(std::min(sample.text.size(), utf8_error(sample.text)));
  }
  samples.push_back(std::move(sample));
}

nlohmann::json to_json(const Counts& c) {
  nlohmann::json json = {{"documents_in", c.documents_in}, {"documents_out", c.documents_out},
                         {"bytes_in", c.bytes_in},         {"bytes_out", c.bytes_out},
                         {"dropped", c.dropped},           {"changed", c.changed}};
  if (!c.contaminated.empty()) json["contaminated"] = c.contaminated;
  return json;
}

Counts counts_of_json(const nlohmann::json& json, const std::string& where) {
  const JsonFields fields(json, where);
  Counts c;
  c.documents_in = fields.integer("documents_in", {.min = 0});
  c.documents_out = fields.integer("documents_out", {.min = 0});
  c.bytes_in = fields.integer("bytes_in", {.min = 0});
  c.bytes_out = fields.integer("bytes_out", {.min = 0});
  c.dropped = named_counts(fields.object("dropped"));
  c.changed = named_counts(fields.object("changed"));
  if (fields.has("contaminated")) c.contaminated = named_counts(fields.object("contaminated"));
  return c;
}

nlohmann::json to_json(const ShardReport& r) {
  nlohmann::json samples = nlohmann::json::array();
  for (const Sample& s : r.samples) {
    samples.push_back({{"reason", s.reason}, {"detail", s.detail}, {"id", s.id}, {"text", s.text}});
    if (!s.file.empty()) samples.back().update({{"file", s.file}, {"row", s.row}});
  }
  nlohmann::json json = {{"counts", to_json(r.counts)}, {"samples", samples}, {"hash", r.hash}, {"broken", r.broken}};
  if (!r.keys.source.empty())
    json["keys"] = {{"source", r.keys.source}, {"rows", r.keys.rows}, {"found", r.keys.found}, {"names", r.keys.names}};
  return json;
}

std::vector<Sample> samples_of_json(const nlohmann::json& json, const std::string& where) {
  std::vector<Sample> samples;
  const JsonFields fields(json, where);
  if (!fields.has("samples")) return samples;
  for (const auto& one : fields.list("samples", "a list of dropped documents")) {
    const JsonFields s(one, where);
    Sample& sample =
        samples.emplace_back(Sample{s.string("reason"), s.string("detail"), s.string("id"), s.string("text")});
    if (!s.has("file")) continue;  // of an older weft
    sample.file = s.string("file");
    sample.row = s.integer("row", {.min = 0});
  }
  return samples;
}

ShardReport report_of_json(const nlohmann::json& json, const std::string& where) {
  const JsonFields fields(json, where);
  ShardReport r;
  r.counts = counts_of_json(fields.object("counts").json(), where);
  r.hash = fields.string("hash");
  r.broken = fields.integer("broken", {.min = 0});
  r.samples = samples_of_json(json, where);
  if (fields.has("keys")) {
    const JsonFields keys = fields.object("keys");
    r.keys.source = keys.string("source");
    r.keys.rows = keys.integer("rows", {.min = 0});
    const auto add_texts = [&](const char* key, std::set<std::string>& texts) {
      for (const auto& one : keys.list(key, "a list of texts"))
        one.is_string() ? void(texts.insert(one.get<std::string>())) : keys.fail(key, "a list of texts");
    };
    add_texts("found", r.keys.found);
    add_texts("names", r.keys.names);
  }
  return r;
}

}  // namespace weft
