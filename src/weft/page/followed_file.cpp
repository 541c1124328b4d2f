#include "weft/page/followed_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = 256 << 10;  // read at once
constexpr size_t kTailBytes = 512;         // compared at each poll: times of steps differ, so a line written anew does

struct FileState {
  int64_t device = 0, inode = 0, size = 0, changed_ns = 0;
};
FileState state_of(int fd) {
  struct stat s = {};
  if (::fstat(fd, &s) != 0) return {};
  return {.device = int64_t(s.st_dev),
          .inode = int64_t(s.st_ino),
          .size = int64_t(s.st_size),
          .changed_ns = int64_t(s.st_mtim.tv_sec) * 1'000'000'000 + int64_t(s.st_mtim.tv_nsec)};
}

// So many bytes at `at`, or fewer at the end of the file.
size_t read_at(int fd, char* to, size_t count, int64_t at) {
  size_t done = 0;
  while (done < count) {
    const ssize_t n = ::pread(fd, to + done, count - done, at + int64_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += size_t(n);
  }
  return done;
}

// The last bytes of two texts, one behind the other.
std::string last_of(const std::string& first, std::string_view second) {
  if (second.size() >= kTailBytes) return std::string(second.substr(second.size() - kTailBytes));
  const std::string both = first + std::string(second);
  return both.size() <= kTailBytes ? both : both.substr(both.size() - kTailBytes);
}

}  // namespace

Descriptor open_plain(const std::filesystem::path& file, std::string& problem) {
  problem.clear();
  Descriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  if (fd < 0) {
    if (errno == ELOOP)
      problem = fmt::format("{}: is a link: not read", file.string());
    else if (errno != ENOENT && errno != ENOTDIR)
      problem = fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno));
    return fd;
  }
  struct stat s = {};
  if (::fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) return fd;
  problem = fmt::format("{}: is no regular file: not read", file.string());
  return Descriptor();
}

std::string read_plain(const std::filesystem::path& file, int64_t most_bytes, std::string& problem) {
  const Descriptor fd = open_plain(file, problem);
  if (fd < 0) return {};
  const int64_t size = state_of(fd).size;
  if (size > most_bytes) {
    problem = fmt::format("{}: has {} bytes, more than the {} that such a file may have: not read", file.string(), size,
                          most_bytes);
    return {};
  }
  std::string text(size_t(size), '\0');
  text.resize(read_at(fd, text.data(), text.size(), 0));
  return text;
}

bool FollowedFile::is_still_the_same(int fd) const {
  std::string now(tail_.size(), '\0');
  const size_t got = read_at(fd, now.data(), now.size(), read_ - int64_t(tail_.size()));
  return got == tail_.size() && now == tail_;
}

void FollowedFile::poll(const Hearer& hearer, int64_t most_bytes) {
  const Descriptor fd = open_plain(spec_.file, problem_);
  const FileState now = fd < 0 ? FileState{} : state_of(fd);
  const bool unchanged =
      now.device == device_ && now.inode == inode_ && now.size == size_ && now.changed_ns == changed_ns_;
  if (unchanged && !has_more_) return;
  const bool another = now.device != device_ || now.inode != inode_ || now.size < read_;
  if (another || (fd >= 0 && !is_still_the_same(fd))) {
    if (read_ > 0) hearer.anew();
    read_ = 0;
    tail_.clear();
    in_long_line_ = false;
  }
  device_ = now.device, inode_ = now.inode, size_ = now.size, changed_ns_ = now.changed_ns;
  has_more_ = false;
  if (fd < 0) return;
  std::vector<char> piece(kPieceBytes);
  std::string begun;           // a line that began in pieces before
  std::string before = tail_;  // the bytes before this piece
  int64_t begin = read_;       // of the line
  for (int64_t at = read_; at < size_;) {
    const size_t count = read_at(fd, piece.data(), size_t(std::min<int64_t>(size_ - at, int64_t(piece.size()))), at);
    if (count == 0) break;
    std::string_view rest(piece.data(), count);
    at += int64_t(count);
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      const std::string_view part = rest.substr(0, end);
      if (in_long_line_)
        hearer.too_long();
      else if (begun.empty())
        hearer.line(part, begin);
      else
        hearer.line(begun.append(part), begin);
      begun.clear();
      in_long_line_ = false;
      begin = at - int64_t(rest.size() - end - 1);
    }
    if (!in_long_line_) begun.append(rest);
    if (begun.size() > spec_.longest_line) in_long_line_ = true, begun = {};
    const int64_t whole = in_long_line_ ? at : begin;  // what need not be read again
    if (whole > read_) {                               // it ends in this piece
      tail_ = last_of(before, {piece.data(), count - size_t(at - whole)});
      most_bytes -= whole - read_;
      read_ = whole;
    }
    before = last_of(before, {piece.data(), count});
    if (most_bytes <= 0) {
      has_more_ = at < size_;
      return;
    }
  }
}

void FollowedFile::read_again(int64_t begin, const std::function<bool(std::string_view)>& line) const {
  std::string problem;
  const Descriptor fd = open_plain(spec_.file, problem);
  if (fd < 0) return;
  std::vector<char> piece(kPieceBytes);
  std::string begun;
  for (int64_t at = begin; at < read_;) {
    const size_t count = read_at(fd, piece.data(), size_t(std::min<int64_t>(read_ - at, int64_t(piece.size()))), at);
    if (count == 0) return;
    at += int64_t(count);
    std::string_view rest(piece.data(), count);
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      begun.append(rest.substr(0, end));
      if (begun.size() <= spec_.longest_line && !line(begun)) return;
      begun.clear();
    }
    if (begun.size() <= spec_.longest_line) begun.append(rest);
  }
}

}  // namespace weft
