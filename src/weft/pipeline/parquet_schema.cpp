#include "weft/pipeline/parquet_schema.h"

#include <array>
#include <iterator>
#include <optional>
#include <set>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/pipeline/thrift_reader.h"

namespace weft {
namespace {

enum class Repetition : uint8_t { kRequired, kOptional, kRepeated };
enum class Group : uint8_t { kPlain, kList, kMap };

// An entry of the list that describes the tree, depth first.
struct Element {
  std::string name;
  std::optional<int64_t> type, length, children;
  Repetition repetition = Repetition::kRequired;
  ParquetForm form = ParquetForm::kPlain;
  Group group = Group::kPlain;
  int64_t scale = 0, per_second = 1;
  bool utc = false;
};

int64_t bounded(int64_t value, int64_t least, int64_t most, const char* what) {
  if (value < least || value > most) throw Error(fmt::format("broken metadata: {} is {}", what, value));
  return value;
}

// What a value means, by its number in the older of the two ways to say so: UTF8, MAP, MAP_KEY_VALUE, LIST, ENUM, ...
using Form = ParquetForm;
constexpr Form kConverted[] = {Form::kText,      Form::kPlain,    Form::kPlain,    Form::kPlain,    Form::kText,
                               Form::kDecimal,   Form::kDate,     Form::kTime,     Form::kTime,     Form::kTimestamp,
                               Form::kTimestamp, Form::kUnsigned, Form::kUnsigned, Form::kUnsigned, Form::kUnsigned,
                               Form::kPlain,     Form::kPlain,    Form::kPlain,    Form::kPlain,    Form::kText,
                               Form::kNone,      Form::kNone};
// By the field of the union that is the newer way: STRING, MAP, LIST, ENUM, ... from 1 on.
constexpr Form kLogical[] = {Form::kPlain, Form::kText, Form::kPlain,     Form::kPlain,  Form::kText,  Form::kDecimal,
                             Form::kDate,  Form::kTime, Form::kTimestamp, Form::kPlain,  Form::kPlain, Form::kNone,
                             Form::kText,  Form::kNone, Form::kUuid,      Form::kFloat16};

void read_converted_type(int64_t converted, Element& e) {
  if (converted < 0 || converted >= int64_t(std::size(kConverted))) return;
  e.form = kConverted[converted];
  if (converted >= 1 && converted <= 3) e.group = converted == 3 ? Group::kList : Group::kMap;
  if (e.form == Form::kTime || e.form == Form::kTimestamp) e.per_second = converted % 2 == 1 ? 1000 : 1000000;
  e.utc = e.form == Form::kTimestamp;
}

// The unit and zone of a time.
void read_time(ThriftReader& in, Element& e) {
  in.for_each_field([&](int id) {
    if (id == 1) return e.utc = in.flag(), true;
    if (id != 2) return false;
    in.for_each_field([&](int unit) {
      constexpr int64_t kTicks[] = {1000, 1000000, 1000000000};
      if (unit >= 1 && unit <= 3) e.per_second = kTicks[unit - 1];
      return false;
    });
    return true;
  });
}

void read_logical_type(ThriftReader& in, Element& e) {
  in.for_each_field([&](int id) {
    if (id > 0 && id < int(std::size(kLogical)) && kLogical[id] != Form::kPlain) e.form = kLogical[id];
    if (id == 2 || id == 3) e.group = id == 2 ? Group::kMap : Group::kList;
    if (id == 7 || id == 8) return read_time(in, e), true;
    if (id != 5 && id != 10) return false;
    in.for_each_field([&](int field) {
      if (id == 5 && field == 1) return e.scale = in.integer(), true;
      if (id == 10 && field == 2 && !in.flag()) e.form = Form::kUnsigned;
      return id == 10 && field == 2;
    });
    return true;
  });
}

Element read_element(ThriftReader& in) {
  Element e;
  std::optional<int64_t> converted;
  bool logical = false;
  Element said;
  in.for_each_field([&](int id) {
    if (id == 1) return e.type = in.integer(), true;
    if (id == 2) return e.length = in.integer(), true;
    if (id == 3) return e.repetition = Repetition(bounded(in.integer(), 0, 2, "a repetition")), true;
    if (id == 4) return e.name = in.binary(), true;
    if (id == 5) return e.children = in.integer(), true;
    if (id == 6) return converted = in.integer(), true;
    if (id == 7) return e.scale = in.integer(), true;
    if (id == 10) return logical = true, read_logical_type(in, said), true;
    return false;
  });
  if (converted) read_converted_type(*converted, e);
  if (!logical) return e;
  if (said.form != Form::kPlain) e.form = said.form, e.per_second = said.per_second, e.utc = said.utc;
  if (said.form == Form::kDecimal) e.scale = said.scale;
  if (said.group != Group::kPlain) e.group = said.group;
  return e;
}

struct Levels {
  int definition = 0, repetition = 0;
};

// The tree and its leaves, from the list.
class Tree {
 public:
  Tree(const std::vector<Element>& elements, ParquetFooter& out) : elements_(elements), out_(out) {}

  void build() {
    if (elements_.empty() || elements_[0].type) throw Error("broken metadata: no columns");
    at_ = 1;
    out_.root = {.name = "", .children = {}};
    members(elements_[0], {}, "", out_.root, 0);
    if (at_ != elements_.size()) throw Error("broken metadata: columns without a place");
  }

 private:
  using Kind = ParquetNode::Kind;
  static constexpr int kMostDepth = 48;  // of JSON rows, 64

  const Element& next() {
    if (at_ >= elements_.size()) throw Error("broken metadata: a group with too few members");
    return elements_[at_++];
  }

  void members(const Element& e, Levels levels, const std::string& path, ParquetNode& node, int depth) {
    if (depth > kMostDepth) throw Error(fmt::format("columns nested more than {} deep", kMostDepth));
    node.kind = Kind::kObject;
    node.first_leaf = out_.leaves.size();
    const int64_t children = bounded(e.children.value_or(0), 1, int64_t(elements_.size()), "a number of members");
    std::set<std::string> names;
    for (int64_t i = 0; i < children; ++i) {
      const Element& child = next();
      node.children.push_back(field(child, levels, path, depth + 1));
      if (!names.insert(child.name).second)
        throw Error(fmt::format("two columns of the name {}", in_quotes(child.name)));
    }
    node.end_leaf = out_.leaves.size();
  }

  // What stands under a name: of a repeated field without more, a list.
  ParquetNode field(const Element& e, Levels levels, const std::string& above, int depth) {
    const std::string path = above.empty() ? e.name : above + "." + e.name;
    if (e.repetition != Repetition::kRepeated) {
      levels.definition += e.repetition == Repetition::kOptional;
      return content(e, levels, path, depth);
    }
    ParquetNode list{.name = e.name, .kind = Kind::kList, .definition = levels.definition, .children = {}};
    open(list, levels);
    list.children.push_back(content(e, levels, path, depth + 1));
    list.end_leaf = out_.leaves.size();
    return list;
  }
  // The levels within a list or map.
  void open(ParquetNode& list, Levels& levels) {
    list.item_definition = ++levels.definition;
    list.repetition = ++levels.repetition;
    list.first_leaf = out_.leaves.size();
  }

  ParquetNode content(const Element& e, Levels levels, const std::string& path, int depth) {
    ParquetNode node{.name = e.name, .definition = levels.definition, .children = {}};
    const bool one = e.children == 1 && at_ < elements_.size();
    if (e.type)
      leaf(e, levels, path, node);
    else if (e.group != Group::kPlain && one && elements_[at_].repetition == Repetition::kRepeated)
      e.group == Group::kMap&& is_map(elements_[at_]) ? map(levels, path, node, depth)
                                                      : list(e, levels, path, node, depth);
    else
      members(e, levels, path, node, depth);
    return node;
  }

  // The rules for lists as older writers made them, of parquet-format's LogicalTypes.md: whether the repeated field is
  // the element itself.
  bool is_element(const Element& list, const Element& repeated) const {
    if (repeated.type || repeated.children != 1) return true;
    if (repeated.name == "array" || repeated.name == list.name + "_tuple") return true;
    return at_ < elements_.size() && elements_[at_].repetition == Repetition::kRepeated;
  }
  void list(const Element& e, Levels levels, const std::string& path, ParquetNode& node, int depth) {
    const Element& repeated = next();
    const std::string within = path + "." + repeated.name;
    node.kind = Kind::kList;
    open(node, levels);
    if (depth > kMostDepth) throw Error(fmt::format("columns nested more than {} deep", kMostDepth));
    if (is_element(e, repeated))
      node.children.push_back(content(repeated, levels, within, depth + 1));
    else
      node.children.push_back(field(next(), levels, within, depth + 1));
    node.end_leaf = out_.leaves.size();
  }
  // A map whose keys are no groups; of others, as of sets, a list of its entries is made.
  bool is_map(const Element& repeated) const {
    return repeated.children == 2 && at_ + 1 < elements_.size() && elements_[at_ + 1].type &&
           elements_[at_ + 1].repetition != Repetition::kRepeated;
  }
  void map(Levels levels, const std::string& path, ParquetNode& node, int depth) {
    const std::string within = path + "." + next().name;
    node.kind = Kind::kMap;
    open(node, levels);
    for (int i = 0; i < 2; ++i) {
      const Element& child = next();
      node.children.push_back(field(child, levels, within, depth + 1));
    }
    node.end_leaf = out_.leaves.size();
  }

  void leaf(const Element& e, Levels levels, const std::string& path, ParquetNode& node) {
    constexpr std::array<int, 8> kWidths = {0, 4, 8, 12, 4, 8, 0, 0};
    ParquetLeaf leaf{.path = path, .most_definition = levels.definition, .most_repetition = levels.repetition};
    leaf.type = ParquetType(bounded(*e.type, 0, 7, "a column's type"));
    leaf.width = kWidths[size_t(leaf.type)];
    if (leaf.type == ParquetType::kFixed)
      leaf.width = int(bounded(e.length.value_or(0), 1, 1 << 20, "a column's width"));
    leaf.form = form_of(e, leaf);
    leaf.scale = int(bounded(e.scale, 0, 38, "a column's scale"));
    leaf.per_second = e.per_second;
    leaf.utc = e.utc;
    constexpr size_t kMostPathBytes = 64 << 20;  // the name of a group is in the path of each of its columns
    if ((path_bytes_ += path.size()) > kMostPathBytes)
      throw Error("broken metadata: the names of columns are too long");
    node.kind = Kind::kLeaf;
    node.first_leaf = out_.leaves.size();
    node.end_leaf = node.first_leaf + 1;
    out_.leaves.push_back(leaf);
  }
  // Ignores an annotation that does not fit the type.
  static Form form_of(const Element& e, const ParquetLeaf& leaf) {
    const ParquetType t = leaf.type;
    const bool integer = t == ParquetType::kInt32 || t == ParquetType::kInt64;
    const bool bytes = t == ParquetType::kBytes || t == ParquetType::kFixed;
    if (t == ParquetType::kInt96) return Form::kTimestamp;
    if (e.form == Form::kNone) return e.form;
    const bool fits = (e.form == Form::kText && bytes) || (e.form == Form::kUnsigned && integer) ||
                      (e.form == Form::kDecimal && (integer || (bytes && leaf.width <= 16))) ||
                      (e.form == Form::kDate && t == ParquetType::kInt32) || (e.form == Form::kTime && integer) ||
                      (e.form == Form::kTimestamp && t == ParquetType::kInt64) ||
                      (e.form == Form::kFloat16 && bytes && leaf.width == 2) ||
                      (e.form == Form::kUuid && bytes && leaf.width == 16);
    return fits ? e.form : Form::kPlain;
  }

  const std::vector<Element>& elements_;
  ParquetFooter& out_;
  size_t at_ = 0, path_bytes_ = 0;
};

// A chunk's metadata, before it is checked against its column.
struct Chunk {
  int64_t type = -1, codec = 0, entries = 0, data = -1, dictionary = 0;
  std::string path;
  bool encrypted = false, elsewhere = false;
};

void read_chunk_metadata(ThriftReader& in, Chunk& c) {
  in.for_each_field([&](int id) {
    if (id == 1) return c.type = in.integer(), true;
    if (id == 3) return in.for_each_element([&] { (c.path += c.path.empty() ? "" : ".") += in.binary(); }), true;
    if (id == 4) return c.codec = in.integer(), true;
    if (id == 5) return c.entries = in.integer(), true;
    if (id == 9) return c.data = in.integer(), true;
    if (id == 11) return c.dictionary = in.integer(), true;
    return false;
  });
}

ParquetChunk read_chunk(ThriftReader& in, const ParquetLeaf& leaf, int64_t data_end) {
  Chunk c;
  in.for_each_field([&](int id) {
    if (id == 1) return c.elsewhere = !in.binary().empty(), true;
    if (id == 3) return read_chunk_metadata(in, c), true;
    c.encrypted |= id == 8 || id == 9;
    return false;
  });
  const auto fail = [&](const std::string& what) {
    throw Error(fmt::format("column {} {}", in_quotes(leaf.path), what));
  };
  if (c.encrypted) fail("is encrypted");
  if (c.elsewhere) fail("is in another file");
  if (c.type != int64_t(leaf.type) || c.path != leaf.path) fail("is not what the schema says");
  constexpr const char* kNames[] = {"", "", "", "LZO", "brotli"};
  if (c.codec == 3 || c.codec == 4)
    fail(fmt::format("is compressed by {}, which is not read: write the file with zstd", kNames[c.codec]));
  if (c.codec < 0 || c.codec > 7) fail(fmt::format("is compressed by codec {}, which is not known", c.codec));
  const bool has_dictionary = c.dictionary > 0 && c.dictionary < c.data;  // some writers say 0 for none
  const int64_t begin = has_dictionary ? c.dictionary : c.data;
  if (c.entries < 0 || begin < 4 || begin > data_end) fail("is not within the file");
  return {.codec = ParquetCodec(c.codec), .entries = c.entries, .begin = begin};
}

ParquetGroup read_group(ThriftReader& in, const std::vector<ParquetLeaf>& leaves, int64_t data_end) {
  constexpr int64_t kMostRows = int64_t{1} << 34;  // so that the rows of all groups can be counted
  ParquetGroup group;
  in.for_each_field([&](int id) {
    if (id == 3) return group.rows = bounded(in.integer(), 0, kMostRows, "a number of rows"), true;
    if (id != 1) return false;
    in.for_each_element([&] {
      if (group.chunks.size() == leaves.size()) throw Error("broken metadata: more chunks than columns");
      group.chunks.push_back(read_chunk(in, leaves[group.chunks.size()], data_end));
    });
    return true;
  });
  if (group.chunks.size() != leaves.size()) throw Error("broken metadata: a row group without columns");
  return group;
}

}  // namespace

ParquetFooter parse_parquet_footer(std::string_view footer, int64_t data_end) {
  constexpr size_t kMostElements = 1 << 18;
  ParquetFooter file;
  std::vector<Element> elements;
  // The schema comes first, but nobody promises that.
  ThriftReader schema(footer), rest(footer);
  schema.for_each_field([&](int id) {
    if (id == 8) throw Error("it is encrypted");
    if (id != 2) return false;
    schema.for_each_element([&] {
      if (elements.size() == kMostElements) throw Error(fmt::format("more than {} columns", kMostElements));
      elements.push_back(read_element(schema));
    });
    return true;
  });
  Tree(elements, file).build();
  rest.for_each_field([&](int id) {
    if (id != 4) return false;
    rest.for_each_element([&] { file.groups.push_back(read_group(rest, file.leaves, data_end)); });
    return true;
  });
  return file;
}

}  // namespace weft
