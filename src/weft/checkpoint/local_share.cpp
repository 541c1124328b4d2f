#include "weft/checkpoint/local_share.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>

#include "weft/base/descriptor.h"
#include "weft/base/durable_file.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/base/mapped_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kLocalFormat = 1;
constexpr int64_t kMostRanks = 1 << 20;
constexpr size_t kAtOnceBytes = size_t{1} << 20;
constexpr const char *kShareManifest = "manifest.json", *kShareData = "data", *kShareFiles = "files";
constexpr const char* kOfNeighbour = ".neighbour";

// Takes a whole number off the front; -1 where there is none.
int64_t take_number(std::string_view& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return -1;
  text.remove_prefix(size_t(end - text.data()));
  return number;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

std::string to_string(const LocalShareName& name) {
  return fmt::format("step-{}.rank-{}-of-{}{}", name.step, name.rank, name.ranks,
                     name.of_neighbour ? kOfNeighbour : "");
}

std::optional<LocalShareName> local_share_name_of(std::string_view folder) {
  std::string_view left = folder;
  if (!take_word(left, "step-")) return {};
  const int64_t step = take_number(left);
  if (!take_word(left, ".rank-")) return {};
  const int64_t rank = take_number(left);
  if (!take_word(left, "-of-")) return {};
  const int64_t ranks = take_number(left);
  const bool of_neighbour = take_word(left, kOfNeighbour);
  if (!left.empty() || step < 0 || rank < 0 || rank >= ranks || ranks > kMostRanks) return {};
  const LocalShareName name{.step = step, .rank = int(rank), .ranks = int(ranks), .of_neighbour = of_neighbour};
  if (to_string(name) != folder) return {};  // a zero before a number
  return name;
}

namespace {

std::string distrust_of_folder(const fs::path& folder, bool may_be_shared) {
  struct stat info = {};
  if (::lstat(folder.c_str(), &info) != 0) return "";  // what cannot be looked at has nothing that can be read
  const auto because = [&](const std::string& why) { return fmt::format("{}: {}", folder.string(), why); };
  if (S_ISLNK(info.st_mode)) return because("is a link; name the folder itself");
  if (!S_ISDIR(info.st_mode)) return because("is no folder");
  const bool is_open = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0, is_sticky = (info.st_mode & S_ISVTX) != 0;
  if (may_be_shared && info.st_uid == 0 && (!is_open || is_sticky)) return "";
  if (info.st_uid != ::geteuid())
    return because(fmt::format("belongs to somebody else (user {})", uint64_t(info.st_uid)));
  if (is_open) return because("others than its owner may write to it; chmod 700 it, if what it holds is yours");
  return "";
}

// One that others make at the same time is as good: who may write to it is looked at afterwards.
void create_for_owner(const fs::path& folder) {
  if (::mkdir(folder.c_str(), S_IRWXU) != 0) {
    if (errno == EEXIST) return;
    throw FileError(fmt::format("{}: cannot be created: {}", folder.string(), std::strerror(errno)));
  }
  const Descriptor parent(::open(folder.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent >= 0) ::fsync(parent);
}

}  // namespace

std::string distrust_of(const fs::path& life) {
  const fs::path folder = fs::absolute(life);
  const std::string why = distrust_of_folder(folder.parent_path(), true);
  return why.empty() ? distrust_of_folder(folder, false) : why;
}

void create_life(const fs::path& life) {
  const fs::path folder = fs::absolute(life), local_dir = folder.parent_path();
  create_folders(local_dir.parent_path());
  create_for_owner(local_dir);
  const auto refuse = [&] {
    if (const std::string why = distrust_of(folder); !why.empty()) throw FileError(why);
  };
  refuse();
  create_for_owner(folder);
  refuse();
}

namespace {

// Goes on from the last pieces where these runs of one tensor are as long and as far from each other.
void add_piece(std::vector<LocalPieces>& pieces, LocalPieces next) {
  if (!pieces.empty()) {
    LocalPieces& last = pieces.back();
    const int64_t stride = last.count == 1 ? next.offset - last.offset : last.stride;
    if (last.file == next.file && last.tensor == next.tensor && last.bytes == next.bytes && stride >= last.bytes &&
        next.offset == last.offset + last.count * stride) {
      last.stride = stride;
      ++last.count;
      return;
    }
  }
  pieces.push_back(std::move(next));
}

}  // namespace

std::vector<LocalPieces> pieces_of(const std::string& folder, const SafetensorsLayout& layout,
                                   std::span<const SharedWriter::Held> runs) {
  std::vector<LocalPieces> pieces;
  for (const SharedWriter::Held& run : runs) {
    const SafetensorsLayout::File& file = layout.files()[run.file];
    int64_t begin = int64_t(file.head.size());  // of a tensor in the file
    for (const TensorInFile& tensor : file.tensors) {
      const int64_t end = begin + tensor.num_bytes();
      const int64_t first = std::max(begin, run.at), last = std::min(end, run.at + run.bytes);
      if (first < last)
        add_piece(pieces,
                  {.file = folder + file.name, .tensor = tensor.name, .offset = first - begin, .bytes = last - first});
      begin = end;
    }
  }
  return pieces;
}

std::string to_text(const LocalShare& share) {
  nlohmann::ordered_json json{{"format", kLocalFormat},
                              {"step", share.name.step},
                              {"rank", share.name.rank},
                              {"ranks", share.name.ranks},
                              {"bytes", share.bytes},
                              {"data", share.hash},
                              {"pieces", nlohmann::ordered_json::array()}};
  for (const LocalPieces& p : share.pieces) {
    json["pieces"].push_back({{"file", p.file}, {"tensor", p.tensor}, {"offset", p.offset}, {"bytes", p.bytes}});
    if (p.count == 1) continue;
    json["pieces"].back()["count"] = p.count;
    json["pieces"].back()["stride"] = p.stride;
  }
  return with_own_hash(json);
}

LocalShare parse_local_share(std::string_view text, std::string_view source) {
  require_own_hash(text, source);
  const nlohmann::json json = parse_json(text, source, {.max_bytes = size_t{1} << 30});
  const JsonFields fields(json, std::string(source));
  if (const int64_t format = fields.integer("format", {.min = 1}); format != kLocalFormat)
    fields.fail("format", fmt::format("format {}, which this weft writes; use the weft that wrote it", kLocalFormat));
  LocalShare share{.name = {.step = fields.integer("step", {.min = 0}),
                            .rank = int(fields.integer("rank", {.min = 0, .max = kMostRanks})),
                            .ranks = int(fields.integer("ranks", {.min = 1, .max = kMostRanks}))},
                   .bytes = fields.integer("bytes", {.min = 0}),
                   .hash = fields.string("data"),
                   .pieces = {}};
  int64_t left = share.bytes;
  for (const nlohmann::json& entry : fields.list("pieces", "a list of pieces of tensors")) {
    const JsonFields p(entry, std::string(source), "pieces.");
    LocalPieces pieces{.file = p.string("file"),
                       .tensor = p.string("tensor"),
                       .offset = p.integer("offset", {.min = 0}),
                       .bytes = p.integer("bytes", {.min = 1, .max = std::max<int64_t>(1, left)}),
                       .count = p.integer("count", {.min = 1}, 1),
                       .stride = p.integer("stride", {.min = 0}, 0)};
    if (pieces.count > left / pieces.bytes) p.fail("count", "not more than the data has");
    left -= pieces.count * pieces.bytes;
    share.pieces.push_back(std::move(pieces));
  }
  if (left != 0) fields.fail("bytes", "the bytes of all pieces");
  return share;
}

std::string write_local_share(const fs::path& folder, LocalShare share, std::span<const std::byte> data) {
  Hasher hash;
  LocalShareFiles files(folder);
  for (size_t at = 0; at < data.size(); at += kAtOnceBytes) {
    const auto some = data.subspan(at, std::min(kAtOnceBytes, data.size() - at));
    hash.add({reinterpret_cast<const char*>(some.data()), some.size()});
    files.write(some);
  }
  share.bytes = int64_t(data.size());
  share.hash = hash.hex();
  std::string manifest = to_text(share);
  files.end(manifest);
  return manifest;
}

LocalShareFiles::LocalShareFiles(fs::path folder) : folder_(std::move(folder)), data_(folder_ / kShareData) {}

void LocalShareFiles::write(std::span<const std::byte> slice) {
  for (size_t at = 0; at < slice.size(); at += kAtOnceBytes) {  // as the file has a buffer of what it is given
    const auto some = slice.subspan(at, std::min(kAtOnceBytes, slice.size() - at));
    data_.write({reinterpret_cast<const char*>(some.data()), some.size()});
  }
}

void LocalShareFiles::end(std::string_view manifest) {
  data_.commit();
  write_file_durably(folder_ / kShareManifest, manifest);
}

namespace {

[[noreturn]] void fail_io(const fs::path& path, const char* what) {
  throw FileError(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno)));
}

[[noreturn]] void fail_unwritten(const fs::path& path, const char* what) {
  throw UnwrittenError(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(errno)));
}

// The whole text of a file of moderate size.
std::string read_text(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd < 0 && errno == ENOENT) throw DamageError(fmt::format("{}: is missing", path.string()));
  if (fd < 0) fail_io(path, "be opened");
  std::string text, some(kAtOnceBytes, '\0');
  for (;;) {
    const ssize_t n = ::read(fd, some.data(), some.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path, "be read");
    if (n == 0) return text;
    text.append(some, 0, size_t(n));
  }
}

void write_whole(int fd, const fs::path& path, std::string_view bytes, int64_t at) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) fail_unwritten(path, "be written");
    bytes.remove_prefix(size_t(n));
    at += n;
  }
}

// The data of a share from front to back.
class ShareData {
 public:
  explicit ShareData(fs::path path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)), buffer_(kAtOnceBytes, '\0') {
    if (fd_ < 0 && errno == ENOENT) throw DamageError(fmt::format("{}: is missing", path_.string()));
    if (fd_ < 0) fail_io(path_, "be opened");
  }
  // The next bytes, at most so many; none at its end.
  std::string_view next(int64_t most) {
    while (left_.empty()) {
      const ssize_t n = ::read(fd_, buffer_.data(), buffer_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_io(path_, "be read");
      if (n == 0) return {};
      left_ = std::string_view(buffer_.data(), size_t(n));
      hash_.add(left_);
    }
    const std::string_view some = left_.substr(0, size_t(std::min<int64_t>(most, kAtOnceBytes)));
    left_.remove_prefix(some.size());
    return some;
  }
  std::string hash() const { return hash_.hex(); }  // of what was read

 private:
  const fs::path path_;
  const Descriptor fd_;
  std::string buffer_;
  std::string_view left_;
  Hasher hash_;
};

// The files of a checkpoint that is being put together, and where their tensors lie.
class AssembledFiles {
 public:
  explicit AssembledFiles(fs::path checkpoint) : checkpoint_(std::move(checkpoint)) {
    const fs::path file = checkpoint_ / kManifestFile;
    const Manifest manifest = parse_manifest(read_text(file), file.string());
    for (const auto& [name, in] : manifest.files) {
      int64_t at = in.head_bytes;
      for (const Manifest::Tensor& tensor : in.tensors) {
        places_[{name, tensor.name}] = {at, tensor.bytes};
        at += tensor.bytes;
      }
    }
  }
  // Where the pieces' tensor begins in its file. Throws DamageError where they are not within one.
  int64_t begin_of(const LocalPieces& p, const fs::path& share) const {
    const auto found = places_.find({p.file, p.tensor});
    const int64_t bytes = found == places_.end() ? 0 : found->second.bytes;
    const bool is_within = p.bytes <= bytes && p.offset <= bytes - p.bytes &&
                           (p.count == 1 || (p.stride > 0 && p.count - 1 <= (bytes - p.bytes - p.offset) / p.stride));
    if (!is_within)
      throw DamageError(
          fmt::format("{}: has pieces of {} in {} that the checkpoint has no place for: it is a share of another one",
                      share.string(), p.tensor, p.file));
    return found->second.begin;
  }
  void write(const std::string& file, std::string_view bytes, int64_t at) {
    Descriptor& fd = open_[file];
    const fs::path path = checkpoint_ / file;
    if (fd < 0) fd = Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd < 0) fail_unwritten(path, "be opened");
    write_whole(fd, path, bytes, at);
  }
  void sync() {
    for (const auto& [file, fd] : open_)
      if (::fsync(fd) != 0) fail_unwritten(checkpoint_ / file, "be synced");
  }

 private:
  struct Place {
    int64_t begin, bytes;
  };
  const fs::path checkpoint_;
  std::map<std::pair<std::string, std::string>, Place> places_;  // by file and tensor
  std::map<std::string, Descriptor> open_;
};

}  // namespace

void begin_checkpoint_of(const fs::path& share, const fs::path& checkpoint) {
  const fs::path files = share / kShareFiles;
  const std::string text = read_text(files / kManifestFile);
  const Manifest manifest = parse_manifest(text, (files / kManifestFile).string());
  const auto create = [&](const std::string& name, std::string_view content, int64_t bytes) {
    const fs::path path = checkpoint / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) errno = error.value(), fail_unwritten(path.parent_path(), "be created");
    const Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd < 0) fail_unwritten(path, "be created");
    write_whole(fd, path, content, 0);
    if (::ftruncate(fd, bytes) != 0) fail_unwritten(path, "be made as large as it is to be");
  };
  for (const auto& [name, file] : manifest.files) create(name, read_text(files / name), file.bytes);
  create(kManifestFile, text, int64_t(text.size()));
}

void add_share_to(const fs::path& share, const fs::path& checkpoint) {
  const fs::path file = share / kShareManifest;
  const LocalShare said = parse_local_share(read_text(file), file.string());
  auto name = local_share_name_of(share.filename().string());
  if (name) name->of_neighbour = false;
  if (name != said.name)
    throw DamageError(
        fmt::format("{}: was saved as {}: it is not what its name says", share.string(), to_string(said.name)));
  AssembledFiles target(checkpoint);
  ShareData data(share / kShareData);
  int64_t taken = 0;
  for (const LocalPieces& p : said.pieces) {
    const int64_t begin = target.begin_of(p, share);
    for (int64_t i = 0; i < p.count; ++i) {
      int64_t at = begin + p.offset + i * p.stride;
      for (int64_t left = p.bytes; left > 0;) {
        const std::string_view some = data.next(left);
        if (some.empty())
          throw DamageError(
              fmt::format("{}: ends after {} of {} bytes", (share / kShareData).string(), taken, said.bytes));
        target.write(p.file, some, at);
        at += int64_t(some.size());
        left -= int64_t(some.size());
        taken += int64_t(some.size());
      }
    }
  }
  if (!data.next(1).empty() || data.hash() != said.hash)
    throw DamageError(fmt::format("{}: is not what was saved: its hash is not the one in its manifest",
                                  (share / kShareData).string()));
  target.sync();
}

}  // namespace weft
