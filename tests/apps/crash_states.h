// What a disk holds if the power fails behind any of the calls that disk_layer.cpp has recorded.
#pragma once
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support.h"

namespace weft::testing {

struct DiskCall {
  char what;
  std::string path, other;
  int64_t offset, size;
  std::string data;
};

inline std::vector<DiskCall> read_disk_calls(const std::filesystem::path& file) {
  const std::string all = slurp(file);
  size_t at = 0;
  const auto take = [&](void* to, size_t bytes) {
    if (at + bytes > all.size()) throw std::runtime_error("a record is cut short");
    std::memcpy(to, all.data() + at, bytes);
    at += bytes;
  };
  const auto text = [&] {
    uint32_t length;
    take(&length, sizeof length);
    std::string t(length, '\0');
    take(t.data(), length);
    return t;
  };
  std::vector<DiskCall> calls;
  while (at < all.size()) {
    DiskCall c{};
    take(&c.what, 1);
    c.path = text();
    c.other = text();
    take(&c.offset, sizeof c.offset);
    take(&c.size, sizeof c.size);
    if (c.what == 'w') {
      c.data.resize(size_t(c.size));
      take(c.data.data(), c.data.size());
    }
    calls.push_back(std::move(c));
  }
  return calls;
}

// How much of what was not synced is on the disk: all; names but no content; nothing.
enum class Unsynced { stays, names_stay, is_lost };

// A folder as its file system has it in memory and on the disk. A rename is whole or absent; synced is what fsync of a
// file (its content) or of a folder (its names) was called for.
class CrashStates {
 public:
  explicit CrashStates(std::filesystem::path below) : below_(std::move(below)) { root_->is_folder = true; }

  void apply(const DiskCall& c) {
    if (c.what == 'm' || c.what == 'c') return create(c);
    if (c.what == 'w') return write(node(c.path)->content, c);
    if (c.what == 't') return node(c.path)->content.resize(size_t(c.offset));
    if (c.what == 's') return sync(*node(c.path));
    if (c.what == 'u') return (void)parent(c.path)->names.erase(name(c.path));
    const NodePtr from = node(c.path);
    const NodePtr there = c.what == 'x' ? node(c.other) : nullptr;
    parent(c.path)->names.erase(name(c.path));
    parent(c.other)->names[name(c.other)] = from;
    if (there) parent(c.path)->names[name(c.path)] = there;
  }
  // Writes what is left into `to`, an empty folder.
  void leave(const std::filesystem::path& to, Unsynced unsynced) const { leave(*root_, to, unsynced); }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePtr>;
  struct Node {
    bool is_folder = false;
    std::string content, on_disk;
    Names names, names_on_disk;
  };

  std::vector<std::string> parts(const std::filesystem::path& path) const {
    std::vector<std::string> all;
    for (const auto& part : std::filesystem::relative(path, below_))
      if (part != ".") all.push_back(part.string());
    return all;
  }
  static std::string name(const std::filesystem::path& path) { return path.filename().string(); }
  NodePtr node(const std::filesystem::path& path) const {
    NodePtr at = root_;
    for (const std::string& part : parts(path.lexically_normal())) {
      const auto found = at->names.find(part);
      if (found == at->names.end()) throw std::runtime_error("nothing is known of " + path.string());
      at = found->second;
    }
    return at;
  }
  NodePtr parent(const std::filesystem::path& path) const { return node(path.parent_path()); }
  void create(const DiskCall& c) {
    NodePtr& at = parent(c.path)->names[name(c.path)];
    if (!at) at = std::make_shared<Node>();
    at->is_folder = c.what == 'm';
    at->content.clear();
  }
  static void write(std::string& content, const DiskCall& c) {
    content.resize(std::max(content.size(), size_t(c.offset + c.size)));
    content.replace(size_t(c.offset), size_t(c.size), c.data);
  }
  static void sync(Node& n) {
    n.on_disk = n.content;
    n.names_on_disk = n.names;
  }
  static void leave(const Node& folder, const std::filesystem::path& to, Unsynced unsynced) {
    std::filesystem::create_directories(to);
    for (const auto& [name, n] : unsynced == Unsynced::is_lost ? folder.names_on_disk : folder.names)
      n->is_folder ? leave(*n, to / name, unsynced)
                   : spill(to / name, unsynced == Unsynced::stays ? n->content : n->on_disk);
  }

  const std::filesystem::path below_;
  NodePtr root_ = std::make_shared<Node>();
};

}  // namespace weft::testing
