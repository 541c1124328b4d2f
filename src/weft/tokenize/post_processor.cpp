#include "weft/tokenize/post_processor.h"

#include "weft/tokenize/component.h"

namespace weft {
namespace {

constexpr JsonFields::IntRange kIds{0, 1 << 24};

// ["[CLS]", 101]
int32_t id_of_pair(const JsonFields& f, std::string_view key) {
  const auto* pair = f.find(key);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_integer())
    throw FileError(fmt::format("{}: expected a token and its id", f.where(key)));
  const auto id = (*pair)[1].get<int64_t>();
  if (id < 0 || id > kIds.max) throw FileError(fmt::format("{}: {} is no id", f.where(key), id));
  return int32_t(id);
}

std::vector<int32_t> ids_of_special(const JsonFields& template_fields, const std::string& name) {
  const JsonFields special = template_fields.object("special_tokens").object(name);
  const auto* ids = special.find("ids");
  if (ids == nullptr || !ids->is_array()) throw FileError(fmt::format("{}: expected an array", special.where("ids")));
  std::vector<int32_t> out;
  for (const auto& id : *ids) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kIds.max)
      throw FileError(fmt::format("{}: expected ids, got {}", special.where("ids"), shown(id)));
    out.push_back(id.get<int32_t>());
  }
  return out;
}

Surroundings read_template(const Component& c) {
  const JsonFields f = c.fields();
  const auto* parts = f.find("single");
  if (parts == nullptr || !parts->is_array()) throw FileError(fmt::format("{}: expected an array", f.where("single")));
  Surroundings s;
  bool text_seen = false;
  for (const auto& part : *parts) {
    const JsonFields fields(part, c.source, "single.");
    if (fields.has("Sequence")) {
      if (text_seen) throw FileError(fmt::format("{}: the text stands in it twice", f.where("single")));
      text_seen = true;
      continue;
    }
    auto& side = text_seen ? s.after : s.before;
    const auto ids = ids_of_special(f, fields.object("SpecialToken").string("id"));
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) throw FileError(fmt::format("{}: the text is missing (Sequence)", f.where("single")));
  return s;
}

}  // namespace

Surroundings read_post_processor(const nlohmann::json& post_processor, const std::string& source) {
  Surroundings all;
  for_each_component({post_processor, source + ": post_processor"}, "processors", [&](const Component& c) {
    const std::string type = c.type();
    Surroundings s;
    if (type == "TemplateProcessing")
      s = read_template(c);
    else if (type == "BertProcessing" || type == "RobertaProcessing")
      s = {{id_of_pair(c.fields(), "cls")}, {id_of_pair(c.fields(), "sep")}};
    else if (type != "ByteLevel")  // that only moves offsets
      c.fail_unknown("TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
    all.before.insert(all.before.begin(), s.before.begin(), s.before.end());
    all.after.insert(all.after.end(), s.after.begin(), s.after.end());
  });
  return all;
}

}  // namespace weft
