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
// edges. Of files for training and evaluation those are nodes that data.json lists, or that lie in a run's folder.
Lineage lineage_of(const std::vector<RunFacts>& runs);
// What a run came from and what came of it, over any number of steps. `path`: of a node. Throws ConfigError where there
// is no such node.
Lineage lineage_around(const Lineage& all, const std::string& path);

// The tree of both ways from a node, as text; each node is told once in full.
std::string lineage_text(const Lineage& lineage, const std::string& path);
// Graphviz: `dot -Tsvg`.
std::string lineage_dot(const Lineage& lineage);
nlohmann::ordered_json to_json(const Lineage& lineage);

// What runs read, to be asked for what depends on a folder. Looks once whether each input is there.
class Dependents {
 public:
  explicit Dependents(const std::vector<RunFacts>& runs);  // must outlive it

  // The other runs that read something in or below `path`, a folder in a run's: "objective.teacher of /runs/b". With
  // them those that may: an input that is not where its run says, as the project was moved or was seen elsewhere in a
  // container, and has the names of `path`, from the run's folder on. `besides`: runs that do not count.
  std::vector<std::string> of(const std::string& path, const std::vector<std::string>& besides = {}) const;
  // One sentence on inputs that are not where their runs say; empty: there are none.
  std::string not_found() const;

 private:
  struct Read {
    const RunFacts* by;
    const RunInput* input;
    bool is_found;
  };
  const std::vector<RunFacts>& runs_;
  std::vector<Read> all_;
};

}  // namespace weft
