#include "weft/history/run_index.h"

#include <sqlite3.h>

#include <chrono>
#include <functional>
#include <thread>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kForm = 1;                    // of the tables below: PRAGMA user_version
constexpr int kApplicationId = 0x77656674;  // "weft": that the file is ours
constexpr const char* kTables = R"(
CREATE TABLE IF NOT EXISTS roots(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs(path BLOB PRIMARY KEY, stamp TEXT NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID;
)";

}  // namespace

struct RunIndex::Database {
  std::string file;
  sqlite3* db = nullptr;

  ~Database() { sqlite3_close(db); }

  [[noreturn]] void fail(const std::string& what, int code) const {
    const int kind = code & 0xff;  // without the extension
    const bool is_damage = kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB;
    throw FileError(
        fmt::format("{}: {}: {}{}", file, what, db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code),
                    is_damage ? "; an index can be removed at any time: the next `weft runs scan FOLDER` makes it anew"
                    : kind == SQLITE_BUSY ? "; another process has written to it all the time: try again"
                    : kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY || kind == SQLITE_PERM || kind == SQLITE_FULL
                        ? "; --index names another place for it"
                        : ""));
  }
  void require(int code, const char* what) const {
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW) fail(what, code);
  }
  void run(const char* sql, const char* what) const { require(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), what); }
};

namespace {

// One statement. Values are bound from 1 on; texts may hold any bytes.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : code_(sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr)) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }

  // `value` must live until the statement has run.
  void bind_blob(int place, const std::string& value) {
    if (code_ == SQLITE_OK) code_ = sqlite3_bind_blob64(statement_, place, value.data(), value.size(), SQLITE_STATIC);
  }
  void bind_text(int place, const std::string& value) {
    if (code_ == SQLITE_OK)
      code_ = sqlite3_bind_text64(statement_, place, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  // SQLITE_ROW, SQLITE_DONE, or an error, of binding too.
  int step() { return code_ == SQLITE_OK ? sqlite3_step(statement_) : code_; }
  int reset() { return sqlite3_reset(statement_); }
  std::string bytes(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size_t(size));
  }
  int number(int column) const { return sqlite3_column_int(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_;
};

// The first row behind the end of what begins with `path`/: '0' follows '/'.
std::string end_of_folder(const std::string& path) { return path + "0"; }

}  // namespace

RunIndex::RunIndex(const fs::path& file) : database_(std::make_unique<Database>()) {
  Database& d = *database_;
  d.file = file.string();
  if (file.has_parent_path()) create_folders(file.parent_path());
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
  if (const int code = sqlite3_open_v2(d.file.c_str(), &d.db, flags, nullptr); code != SQLITE_OK)
    d.fail("cannot be opened", code);
  sqlite3_busy_timeout(d.db, int(1000 * kIndexWaitS));
  const auto number_of = [&](const char* pragma) {
    Statement s(d.db, pragma);
    const int code = s.step();
    d.require(code, "cannot be read");
    return code == SQLITE_ROW ? s.number(0) : 0;
  };
  const bool is_new = number_of("SELECT count(*) FROM sqlite_master") == 0;
  if (!is_new && number_of("PRAGMA application_id") != kApplicationId)
    throw FileError(fmt::format("{}: is a database of another program; --index names another place", d.file));
  d.run("PRAGMA synchronous = NORMAL", "cannot be opened");  // of this connection
  if (!is_new && number_of("PRAGMA user_version") == kForm) return;
  // A new file changes to a write-ahead log; two that do so at once are told that it is busy without having waited.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(kIndexWaitS);
  for (;;) {
    const int code = sqlite3_exec(d.db, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) break;
    if ((code & 0xff) != SQLITE_BUSY || std::chrono::steady_clock::now() > give_up) d.fail("cannot be opened", code);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  d.run("BEGIN IMMEDIATE", "cannot be opened");
  const int form = number_of("PRAGMA user_version");
  if (form > kForm)
    throw FileError(
        fmt::format("{}: is of a later weft (form {}, this one knows {}): use that, or name another file "
                    "with --index",
                    d.file, form, kForm));
  if (form < kForm) d.run("DROP TABLE IF EXISTS runs", "cannot be made anew");
  d.run(kTables, "cannot be made");
  d.run(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, kForm).c_str(),
        "cannot be made");
  d.run("COMMIT", "cannot be made");
}

RunIndex::~RunIndex() = default;

namespace {

// `change` in a transaction of its own, which waits for other writers first.
void in_transaction(sqlite3* db, const std::function<void(const char*)>& run, const std::function<void()>& change) {
  run("BEGIN IMMEDIATE");
  try {
    change();
    run("COMMIT");
  } catch (...) {
    sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

}  // namespace

std::vector<std::string> RunIndex::roots() const {
  Statement s(database_->db, "SELECT path FROM roots ORDER BY path");
  std::vector<std::string> all;
  int code;
  while ((code = s.step()) == SQLITE_ROW) all.push_back(s.bytes(0));
  database_->require(code, "cannot be read");
  return all;
}

void RunIndex::add_roots(const std::vector<std::string>& roots) {
  const auto run = [&](const char* sql) { database_->run(sql, "cannot be written"); };
  in_transaction(database_->db, run, [&] {
    for (const std::string& root : roots) {
      Statement s(database_->db, "INSERT OR IGNORE INTO roots VALUES(?)");
      s.bind_blob(1, root);
      database_->require(s.step(), "cannot be written");
    }
  });
}

void RunIndex::remove_root(const std::string& root) {
  const auto run = [&](const char* sql) { database_->run(sql, "cannot be written"); };
  const std::string below = root == "/" ? "/" : root + "/", end = end_of_folder(root == "/" ? "" : root);
  in_transaction(database_->db, run, [&] {
    Statement s(database_->db, "DELETE FROM roots WHERE path = ?");
    s.bind_blob(1, root);
    database_->require(s.step(), "cannot be written");
    Statement runs(database_->db, "DELETE FROM runs WHERE path = ?1 OR (path >= ?2 AND path < ?3)");
    runs.bind_blob(1, root);
    runs.bind_blob(2, below);
    runs.bind_blob(3, end);
    database_->require(runs.step(), "cannot be written");
  });
}

std::vector<RunIndex::Entry> RunIndex::runs() const {
  Statement s(database_->db, "SELECT path, stamp, facts FROM runs ORDER BY path");
  std::vector<Entry> all;
  int code;
  while ((code = s.step()) == SQLITE_ROW) all.push_back({.path = s.bytes(0), .stamp = s.bytes(1), .facts = s.bytes(2)});
  database_->require(code, "cannot be read");
  return all;
}

void RunIndex::update(const std::vector<Entry>& changed, const std::vector<std::string>& gone) {
  if (changed.empty() && gone.empty()) return;
  const auto run = [&](const char* sql) { database_->run(sql, "cannot be written"); };
  in_transaction(database_->db, run, [&] {
    for (const Entry& e : changed) {
      Statement s(database_->db, "INSERT OR REPLACE INTO runs VALUES(?, ?, ?)");
      s.bind_blob(1, e.path);
      s.bind_text(2, e.stamp);
      s.bind_text(3, e.facts);
      database_->require(s.step(), "cannot be written");
    }
    for (const std::string& path : gone) {
      Statement s(database_->db, "DELETE FROM runs WHERE path = ?");
      s.bind_blob(1, path);
      database_->require(s.step(), "cannot be written");
    }
  });
}

}  // namespace weft
