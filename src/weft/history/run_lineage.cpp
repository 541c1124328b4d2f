#include "weft/history/run_lineage.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kOriginNames = {"dataset", "file", "model", "run", "checkpoint"};

bool is_at_or_below(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder.ends_with('/') ? folder : folder + "/");
}

std::vector<fs::path> names_in(const fs::path& path) {
  std::vector<fs::path> names;
  for (const fs::path& part : path.lexically_normal().relative_path())
    if (!part.empty() && part != ".") names.push_back(part);
  return names;
}

// Whether `text` may have led to something in or below `path`, which is in the folder of `run`: the names of `path`,
// from that of the run's folder on, stand in it, or as many of them as it begins with.
bool may_have_meant(const fs::path& text, const fs::path& path, const fs::path& run) {
  std::vector<fs::path> wanted{run.filename()};
  for (const fs::path& name : names_in(path.lexically_relative(run))) wanted.push_back(name);
  const std::vector<fs::path> names = names_in(text);
  for (size_t end = 1; end <= names.size(); ++end) {
    const auto most = std::ptrdiff_t(std::min(end, wanted.size()));
    const auto at = names.begin() + std::ptrdiff_t(end);
    if (std::equal(at - most, at, wanted.end() - most)) return true;
  }
  return false;
}

class LineageBuilder {
 public:
  explicit LineageBuilder(const std::vector<RunFacts>& runs) : runs_(runs) {
    for (const RunFacts& r : runs) by_path_[r.path] = &r;
  }

  Lineage build() {
    for (const RunFacts& r : runs_) {
      const size_t run = node(OriginKind::run, r.path);
      lineage_.nodes[run].note = std::string(name_of(r.status));
      for (const CheckpointFacts& c : r.checkpoints)
        edge(run, node(OriginKind::checkpoint, r.checkpoint(c.step).string()), "saved");
    }
    for (const RunFacts& r : runs_) {
      const size_t run = node(OriginKind::run, r.path);
      for (const RunSource& s : r.data)
        edge(s.dataset.empty() ? node(OriginKind::file, s.path, s.contents)
                               : node(OriginKind::dataset, s.dataset, s.version),
             run, "data");
      for (const RunInput& input : r.inputs)
        if (!is_at_or_below(input.path, r.path) && (is_a_model(input.role) || run_of(input.path) != nullptr))
          edge(origin_of(input.path), run, input.role);
    }
    return std::move(lineage_);
  }

 private:
  size_t node(OriginKind kind, const std::string& path, const std::string& version = "") {
    const auto [at, is_new] = numbers_.try_emplace({kind, path, version}, lineage_.nodes.size());
    if (is_new) lineage_.nodes.push_back({.kind = kind, .path = path, .version = version});
    return at->second;
  }
  void edge(size_t from, size_t to, const std::string& role) {
    if (edges_.emplace(from, to, role).second) lineage_.edges.push_back({.from = from, .to = to, .role = role});
  }
  // Not a file for training or evaluation, of which data.json says more.
  static bool is_a_model(const std::string& role) {
    const std::string key = role.substr(role.rfind(' ') + 1);  // "phase 1: objective.teacher"; npos + 1 is 0
    return key == "--from" || key.starts_with("model.") || key.starts_with("adapter.") || key.starts_with("objective.");
  }
  // The run in whose folder a path is; null: in none.
  const RunFacts* run_of(const fs::path& path) const {
    for (fs::path at = path;; at = at.parent_path()) {
      const auto found = by_path_.find(at.string());
      if (found != by_path_.end()) return found->second;
      if (!at.has_relative_path()) return nullptr;
    }
  }
  // A path that a run reads: of another run, of a checkpoint of one, or a model from elsewhere.
  size_t origin_of(const std::string& path) {
    const RunFacts* r = run_of(path);
    if (r == nullptr) return node(OriginKind::model, path);
    const fs::path rest = fs::path(path).lexically_relative(r->path);
    auto part = rest.begin();
    const size_t run = node(OriginKind::run, r->path);
    if (part == rest.end() || *part != "checkpoints" || ++part == rest.end()) return run;
    const fs::path folder = fs::path(r->path) / "checkpoints" / *part;
    const size_t checkpoint = node(OriginKind::checkpoint, folder.string());
    const bool is_there = std::any_of(r->checkpoints.begin(), r->checkpoints.end(),
                                      [&](const CheckpointFacts& c) { return r->checkpoint(c.step) == folder; });
    if (!is_there) lineage_.nodes[checkpoint].note = "is gone";
    edge(run, checkpoint, "saved");
    return checkpoint;
  }

  const std::vector<RunFacts>& runs_;
  Lineage lineage_;
  std::map<std::string, const RunFacts*> by_path_;
  std::map<std::tuple<OriginKind, std::string, std::string>, size_t> numbers_;  // of nodes
  std::set<std::tuple<size_t, size_t, std::string>> edges_;
};

size_t node_at(const Lineage& lineage, const std::string& path) {
  for (size_t i = 0; i < lineage.nodes.size(); ++i)
    if (lineage.nodes[i].path == path) return i;
  throw ConfigError(
      fmt::format("{}: no run that is known has read or written it; `weft runs lineage` shows all", in_quotes(path)));
}

// All nodes that edges lead to from `start`, or that lead there.
std::set<size_t> reached(const Lineage& lineage, size_t start, bool forward) {
  std::set<size_t> found = {start};
  std::vector<size_t> todo = {start};
  while (!todo.empty()) {
    const size_t now = todo.back();
    todo.pop_back();
    for (const Lineage::Edge& e : lineage.edges)
      if ((forward ? e.from : e.to) == now)
        if (const size_t next = forward ? e.to : e.from; found.insert(next).second) todo.push_back(next);
  }
  return found;
}

bool is_plain_text(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::string node_text(const Lineage::Node& n) {
  std::string text = fmt::format("{} {}", name_of(n.kind), is_plain_text(n.path) ? n.path : in_quotes(n.path));
  if (!n.version.empty())
    text += fmt::format(", {} {}", n.kind == OriginKind::file ? "contents" : "version", n.version);
  if (!n.note.empty()) text += fmt::format(" ({})", n.note);
  return text;
}

// One way from a node, a line for each node, indented.
void add_tree(std::string& text, const Lineage& lineage, size_t at, bool forward, int depth, std::set<size_t>& told) {
  constexpr int kDeepest = 200;
  for (const Lineage::Edge& e : lineage.edges) {
    if ((forward ? e.from : e.to) != at) continue;
    const size_t next = forward ? e.to : e.from;
    const bool is_told = !told.insert(next).second;
    text += fmt::format("{}{}{}{}\n", std::string(size_t(2 * depth), ' '), node_text(lineage.nodes[next]),
                        e.role == "saved" ? "" : fmt::format(", as {}", e.role), is_told ? " (see above)" : "");
    if (!is_told && depth < kDeepest) add_tree(text, lineage, next, forward, depth + 1, told);
  }
}

std::string in_dot_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

std::string_view name_of(OriginKind kind) { return kOriginNames[size_t(kind)]; }

Lineage lineage_of(const std::vector<RunFacts>& runs) { return LineageBuilder(runs).build(); }

Lineage lineage_around(const Lineage& all, const std::string& path) {
  const size_t start = node_at(all, path);
  std::set<size_t> kept = reached(all, start, false);
  kept.merge(reached(all, start, true));
  Lineage part;
  std::map<size_t, size_t> numbers;
  for (const size_t i : kept) {
    numbers[i] = part.nodes.size();
    part.nodes.push_back(all.nodes[i]);
  }
  for (const Lineage::Edge& e : all.edges)
    if (kept.contains(e.from) && kept.contains(e.to))
      part.edges.push_back({.from = numbers[e.from], .to = numbers[e.to], .role = e.role});
  return part;
}

std::string lineage_text(const Lineage& lineage, const std::string& path) {
  const size_t start = node_at(lineage, path);
  std::string text = node_text(lineage.nodes[start]) + "\n";
  const std::pair<const char*, bool> ways[] = {{"made from", false}, {"became", true}};
  for (const auto& [name, forward] : ways) {
    std::set<size_t> told = {start};
    std::string tree;
    add_tree(tree, lineage, start, forward, 2, told);
    text += fmt::format("  {}{}\n{}", name, tree.empty() ? ": nothing that is known" : "", tree);
  }
  return text;
}

std::string lineage_dot(const Lineage& lineage) {
  std::string text = "digraph runs {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (size_t i = 0; i < lineage.nodes.size(); ++i)
    text += fmt::format("  n{} [label={}];\n", i, in_dot_quotes(node_text(lineage.nodes[i])));
  for (const Lineage::Edge& e : lineage.edges)
    text += fmt::format("  n{} -> n{} [label={}];\n", e.from, e.to, in_dot_quotes(e.role));
  return text + "}\n";
}

nlohmann::ordered_json to_json(const Lineage& lineage) {
  nlohmann::ordered_json json{{"nodes", nlohmann::ordered_json::array()}, {"edges", nlohmann::ordered_json::array()}};
  for (const Lineage::Node& n : lineage.nodes)
    json["nodes"].push_back({{"kind", name_of(n.kind)}, {"path", n.path}, {"version", n.version}, {"note", n.note}});
  for (const Lineage::Edge& e : lineage.edges)
    json["edges"].push_back({{"from", e.from}, {"to", e.to}, {"role", e.role}});
  return json;
}

Dependents::Dependents(const std::vector<RunFacts>& runs) : runs_(runs) {
  for (const RunFacts& r : runs)
    for (const RunInput& input : r.inputs)
      all_.push_back({&r, &input, fs::path(input.path).is_absolute() && is_name_taken(input.path)});
}

std::vector<std::string> Dependents::of(const std::string& path, const std::vector<std::string>& besides) const {
  std::string run = path;
  for (const RunFacts& r : runs_)
    if (is_at_or_below(path, r.path)) run = r.path;
  std::vector<std::string> found;
  for (const Read& read : all_) {
    if (is_at_or_below(read.by->path, path) ||
        std::find(besides.begin(), besides.end(), read.by->path) != besides.end())
      continue;
    if (is_at_or_below(read.input->path, path))
      found.push_back(fmt::format("{} of {}", read.input->role, read.by->path));
    else if (!read.is_found && may_have_meant(read.input->path, path, run))
      found.push_back(fmt::format("{} of {}, perhaps: {} is not there", read.input->role, read.by->path,
                                  in_quotes(read.input->path)));
  }
  return found;
}

std::string Dependents::not_found() const {
  const auto first = std::find_if(all_.begin(), all_.end(), [](const Read& read) { return !read.is_found; });
  if (first == all_.end()) return "";
  const auto count = std::count_if(all_.begin(), all_.end(), [](const Read& read) { return !read.is_found; });
  return fmt::format("{} input{} of runs cannot be found, as {} of {}: {}; what has the same names stays", count,
                     count == 1 ? "" : "s", first->input->role, first->by->path, in_quotes(first->input->path));
}

}  // namespace weft
