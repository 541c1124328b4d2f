// What came of what: dataset -> run -> checkpoint -> run that went on from it, as far as the runs' own records say it.
#pragma once
#include <string>
#include <vector>

#include "weft/history/run_facts.h"

namespace weft {

enum class OriginKind : uint8_t { dataset, file, model, run, checkpoint };
std::string_view name_of(OriginKind kind);

struct Lineage {
  struct Node {
    OriginKind kind = OriginKind::model;
    std::string path;          // of its folder or file
    std::string version = {};  // of a dataset, or the contents of a file
    std::string note = {};     // "finished"; "is gone"
    bool operator==(const Node&) const = default;
  };
  struct Edge {
    size_t from = 0, to = 0;  // of nodes
    std::string role = {};    // the key of the recipe, or "--from"; "saved" of a checkpoint
    bool operator==(const Edge&) const = default;
  };
  std::vector<Node> nodes = {};
  std::vector<Edge> edges = {};
};

// Of all these runs. A checkpoint is a node if a run read it, or if it is there. Recipes may go in circles: so may
// edges.
Lineage lineage_of(const std::vector<RunFacts>& runs);
// What a run came from and what came of it, over any number of steps. `path`: of a node. Throws ConfigError where there
// is no such node.
Lineage lineage_around(const Lineage& all, const std::string& path);

// The tree of both ways from a node, as text; each node is told once in full.
std::string lineage_text(const Lineage& lineage, const std::string& path);
// Graphviz: `dot -Tsvg`.
std::string lineage_dot(const Lineage& lineage);
nlohmann::ordered_json to_json(const Lineage& lineage);

// The other runs that read something in or below `path`: "objective.teacher of /runs/b".
std::vector<std::string> dependents_of(const std::vector<RunFacts>& runs, const std::string& path,
                                       const std::vector<std::string>& besides = {});

}  // namespace weft
