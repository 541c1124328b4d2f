#include "weft/checkpoint/checkpoint_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>

#include "weft/base/descriptor.h"
#include "weft/base/hashing.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/parallel.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/checkpoint/word_sum.h"
#include "weft/comm/agree.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "weft/state.json";
constexpr const char* kOptimizerFile = "weft/optimizer.safetensors";
constexpr const char* kWhatToDo =
    "; the checkpoint is damaged: take another one. Or was it changed on purpose? Then copy the folder without weft/, "
    "and name the copy as a model";
constexpr int64_t kRunBytes = 1 << 20, kMostText = 1 << 30;

// A file that is read where the reader says, in whole runs.
class Reader {
 public:
  // Not blocking: to open a named pipe would be to wait for its writer.
  explicit Reader(fs::path path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat info = {};
    if (file_ < 0 || ::fstat(file_, &info) != 0) fail();
    if (!S_ISREG(info.st_mode)) throw DamageError(fmt::format("{}: is not a regular file", path_.string()));
    size_ = info.st_size;
  }
  int64_t size() const { return size_; }

  void read(int64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ssize_t n = ::pread(file_, to.data(), to.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      if (n == 0) throw DamageError(fmt::format("{}: ends at byte {}", path_.string(), offset));
      offset += n;
      to = to.subspan(size_t(n));
    }
  }
  std::string text() const {
    if (size_ > kMostText) throw DamageError(fmt::format("{}: has {} bytes: far too many", path_.string(), size_));
    std::string text(size_t(size_), '\0');
    read(0, std::as_writable_bytes(std::span(text)));
    return text;
  }
  // The hash of the file's first `bytes` bytes.
  std::string xxh128(int64_t bytes) const {
    std::vector<std::byte> buffer(size_t(std::min(bytes, kRunBytes)));
    Hasher hash;
    for (int64_t at = 0; at < bytes; at += kRunBytes) {
      const auto run = std::span(buffer).first(size_t(std::min(kRunBytes, bytes - at)));
      read(at, run);
      hash.add({reinterpret_cast<const char*>(run.data()), run.size()});
    }
    return hash.hex();
  }

 private:
  [[noreturn]] void fail() const {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) throw DamageError(fmt::format("{}: is missing", path_.string()));
    const std::string text = fmt::format("{}: cannot be read: {}", path_.string(), std::strerror(error));
    if (error == EIO || error == ELOOP) throw DamageError(text);
    throw FileError(text);
  }

  fs::path path_;
  Descriptor file_;
  int64_t size_ = 0;
};

// Throws DamageError.
Manifest read_manifest(const fs::path& checkpoint, std::string* hash = nullptr) {
  const fs::path file = checkpoint / kManifestFile;
  const std::string text = Reader(file).text();
  if (hash != nullptr) *hash = to_hex(hash128(text));
  return parse_manifest(text, file.string());
}

// All but its tensors.
void check_file(const fs::path& path, const Manifest::File& file) {
  const Reader reader(path);
  if (reader.size() != file.bytes)
    throw DamageError(fmt::format("{}: has {} bytes, {} were saved", path.string(), reader.size(), file.bytes));
  if (reader.xxh128(file.head_bytes) != file.head)
    throw DamageError(
        fmt::format("{}: {} is not what was saved", path.string(), file.tensors.empty() ? "it" : "its header"));
}

// A reader sees weights by these names, whoever has put them there.
bool is_of_weights(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

// What a run leaves behind: step-N.tmp, .removing, ...
bool is_left_behind(const fs::path& folder) {
  return folder.has_extension() && folder.stem().string().starts_with("step-");
}

}  // namespace

bool is_checkpoint(const fs::path& folder) { return is_there(folder / kStateFile) || is_there(folder / kManifestFile); }

std::string why_no_model(const fs::path& given) {
  std::error_code ignored;
  fs::path folder = fs::weakly_canonical(given, ignored);
  if (ignored) folder = given;
  const fs::path parent = folder.parent_path();
  if (parent.filename() != "checkpoints" || !folder.filename().string().starts_with("step-") ||
      !is_there(parent.parent_path() / "recipe.toml"))
    return "";
  if (is_left_behind(folder))
    return fmt::format(
        "{}: is what a save or a removal left behind when it was cut off, or a damaged checkpoint that "
        "was set aside; take another one",
        given.string());
  if (is_there(folder / kStateFile)) return "";
  return fmt::format("{}: is half of a checkpoint: {} is missing; take another one, and remove this", given.string(),
                     kStateFile);
}

CheckpointCheck::CheckpointCheck(fs::path checkpoint, CheckpointPart part)
    : checkpoint_(std::move(checkpoint)), part_(part) {
  if (!is_there(checkpoint_ / kManifestFile)) {
    open_without_manifest();
    return;
  }
  manifest_ = read_manifest(checkpoint_, &manifest_hash_);
  for (const auto& [name, expected] : manifest_->files) {
    if (part_ == CheckpointPart::model && name == kOptimizerFile) continue;
    check_file(checkpoint_ / name, expected);
    int64_t offset = expected.head_bytes;
    for (const Manifest::Tensor& t : expected.tensors) {
      tensors_.push_back({&name, &t, offset});
      offset += t.bytes;
    }
  }
  refuse_other_weights();
}

// For format 1: reads what the files themselves tell.
void CheckpointCheck::open_without_manifest() const {
  const fs::path state = checkpoint_ / kStateFile;
  const Reader reader(state);
  const std::string text = reader.text();
  int64_t format = 0;
  try {
    const nlohmann::json json = parse_json(text, state.string());
    format = JsonFields(json, state.string()).integer("format", {.min = 1});
    if (format == 1) {
      read_json_file(checkpoint_ / "config.json");
      SafetensorsFolder::open(checkpoint_);
      if (part_ == CheckpointPart::all) SafetensorsFile::open(checkpoint_ / kOptimizerFile);
    }
  } catch (const FileError& e) { throw DamageError(e.what()); }
  if (format != 1) throw DamageError(fmt::format("{}: is missing", (checkpoint_ / kManifestFile).string()));
}

void CheckpointCheck::refuse_other_weights() const {
  for (const std::string& name : strangers())
    if (is_of_weights(name))
      throw DamageError(fmt::format("{}: was not saved with this checkpoint", (checkpoint_ / name).string()));
}

std::vector<std::string> CheckpointCheck::strangers() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const char* folder : {"", "weft"})
    for (fs::directory_iterator at(checkpoint_ / folder, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().lexically_relative(checkpoint_).generic_string();
      if (manifest_ && name != kManifestFile && name != "weft" && manifest_->files.count(name) == 0)
        names.push_back(name);
    }
  std::sort(names.begin(), names.end());
  return names;
}

// The tensors stand one after the other; a share is a run of their words.
std::vector<CheckpointCheck::ByteRun> CheckpointCheck::runs_of(int share, int num_shares) const {
  int64_t units = 0;  // of a run's size, the last of each tensor smaller
  const auto units_of = [](const Place& t) { return (t.tensor->bytes + kRunBytes - 1) / kRunBytes; };
  for (const Place& t : tensors_) units += units_of(t);
  const int64_t first = units * share / num_shares, end = units * (share + 1) / num_shares;
  std::vector<ByteRun> runs;
  int64_t unit = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    for (int64_t k = 0; k < units_of(tensors_[i]); ++k, ++unit)
      if (unit >= first && unit < end)
        runs.push_back({i, k * kRunBytes, std::min<int64_t>(kRunBytes, tensors_[i].tensor->bytes - k * kRunBytes)});
  }
  return runs;
}

std::vector<uint64_t> CheckpointCheck::sums_of_share(int share, int num_shares, int num_threads) const {
  const std::vector<ByteRun> runs = runs_of(share, num_shares);
  std::vector<uint64_t> sums(tensors_.size(), 0);
  std::mutex mutex;
  parallel_for(int64_t(runs.size()), num_threads, 1, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> buffer(static_cast<size_t>(kRunBytes));
    std::optional<Reader> reader;
    const std::string* open = nullptr;
    for (int64_t i = begin; i < end; ++i) {
      const ByteRun& run = runs[size_t(i)];
      const Place& place = tensors_[run.tensor];
      if (open != place.file) reader.emplace(checkpoint_ / *(open = place.file));
      const std::span<std::byte> bytes = std::span(buffer).first(size_t(run.bytes));
      reader->read(place.offset + run.offset, bytes);
      const uint64_t sum =
          place.tensor->word_bytes == 1 ? byte_sum(bytes, run.offset) : word_sum(bytes, run.offset / 4);
      const std::lock_guard lock(mutex);
      sums[run.tensor] += sum;
    }
  });
  return sums;
}

void CheckpointCheck::judge(std::span<const uint64_t> sums) const {
  constexpr int kNamed = 4;
  WEFT_CHECK(sums.size() == tensors_.size(), "{} sums of {} tensors", sums.size(), tensors_.size());
  std::string list;
  int count = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const Place& place = tensors_[i];
    if (sums[i] == place.tensor->sum || ++count > kNamed) continue;
    list += fmt::format("{}{}: tensor {}", list.empty() ? "" : ", ", (checkpoint_ / *place.file).string(),
                        in_quotes(place.tensor->name));
  }
  if (count == 0) return;
  throw DamageError(fmt::format("{}{} not what was saved", list,
                                count == 1        ? " is"
                                : count <= kNamed ? " are"
                                                  : fmt::format(" and {} more are", count - kNamed)));
}

void sum_over(Communicator& ranks, std::vector<uint64_t>& sums) {
  if (sums.empty() || ranks.size() == 1) return;
  const size_t n = sums.size();
  std::vector<uint64_t> all(n * size_t(ranks.size()));
  ranks
      .all_gather({sums.data(), DType::u8, {int64_t(n * sizeof(uint64_t))}},
                  {all.data(), DType::u8, {int64_t(all.size() * sizeof(uint64_t))}})
      .wait();
  for (size_t i = 0; i < n; ++i) {
    sums[i] = 0;
    for (size_t r = 0; r < size_t(ranks.size()); ++r) sums[i] += all[r * n + i];
  }
}

namespace {

// Calls `f` on every rank; returns the damage that the first of them has found. Throws the same FileError on all.
std::string damage_found(Communicator& ranks, const std::function<void()>& f) {
  std::string mine;
  agree(ranks, [&] {
    try {
      f();
    } catch (const DamageError& e) { mine = e.what(); }
  });
  return first_text(ranks, mine);
}

// Ranks that read different manifests would sum different tensors.
void require_same_manifest(Communicator& ranks, const CheckpointCheck& check, const fs::path& checkpoint) {
  const std::string& mine = check.manifest_hash();
  const std::string first = first_text(ranks, mine);
  const std::string other = first_text(ranks, mine == first ? "" : std::to_string(ranks.rank()));
  if (!other.empty())
    throw FileError(
        fmt::format("{}: rank {} does not see the file that other ranks see: do all hosts have the same file system "
                    "there, and is it up to date on each?",
                    (checkpoint / kManifestFile).string(), other));
}

}  // namespace

CheckOutcome check_checkpoint(const fs::path& checkpoint, CheckpointPart part, Communicator& ranks, int num_threads) {
  std::optional<CheckpointCheck> check;
  if (const auto damage = damage_found(ranks, [&] { check.emplace(checkpoint, part); }); !damage.empty())
    return {.damage = damage};
  require_same_manifest(ranks, *check, checkpoint);
  std::vector<uint64_t> sums;
  const auto sum = [&] { sums = check->sums_of_share(ranks.rank(), ranks.size(), num_threads); };
  if (const auto damage = damage_found(ranks, sum); !damage.empty()) return {.damage = damage};
  sum_over(ranks, sums);
  try {
    check->judge(sums);
  } catch (const DamageError& e) { return {.damage = e.what()}; }
  return {.damage = "", .has_manifest = check->has_manifest(), .step = check->has_manifest() ? check->step() : -1};
}

void require_saved(const fs::path& folder, const std::string& name) {
  if (!is_there(folder / kManifestFile)) return;
  const Manifest manifest = read_manifest(folder);
  try {
    if (const auto file = manifest.files.find(name); file != manifest.files.end())
      check_file(folder / name, file->second);
  } catch (const DamageError& e) { throw DamageError(std::string(e.what()) + kWhatToDo); }
}

std::string require_whole(const fs::path& folder, CheckpointPart part, Communicator& ranks, int num_threads) {
  if (const std::string why = first_text(ranks, why_no_model(folder)); !why.empty()) throw DamageError(why);
  if (first_text(ranks, is_checkpoint(folder) ? "it is" : "").empty()) return "";
  const CheckOutcome checked = check_checkpoint(folder, part, ranks, num_threads);
  if (!checked.damage.empty()) throw DamageError(checked.damage + kWhatToDo);
  return checked.has_manifest
             ? ""
             : fmt::format("{}: is of format 1, without hashes: it cannot be checked for damage", folder.string());
}

}  // namespace weft
