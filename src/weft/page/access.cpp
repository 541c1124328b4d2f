#include "weft/page/access.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"

namespace weft {
namespace {

bool is_ip_address(const std::string& host) {
  in6_addr ignored = {};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 || ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return lower;
}

std::string without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

}  // namespace

bool is_loopback(std::string_view address) {
  const std::string text(address);
  in_addr v4 = {};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return text == "::1" || text == "localhost";
}

std::string host_of(std::string_view header) {
  const std::string text = in_lower_case(without_blanks(header));
  if (text.starts_with("[")) {
    const size_t end = text.find(']');
    return end == std::string::npos ? "" : text.substr(1, end - 1);
  }
  return text.substr(0, text.find(':'));
}

bool is_known_host(std::string_view header, std::string_view address, std::string_view name_of_machine) {
  const std::string host = host_of(header);
  if (host.empty()) return false;
  if (host == "localhost" || is_ip_address(host) || host == in_lower_case(address)) return true;
  const std::string machine = in_lower_case(name_of_machine);
  return !machine.empty() && host == machine;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned char differ = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    differ = static_cast<unsigned char>(differ | (a[i] ^ (b.empty() ? 0 : b[i % b.size()])));
  return differ == 0;
}

std::string cookie_in(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    const size_t end = std::min(header.find(';'), header.size());
    const std::string one = without_blanks(header.substr(0, end));
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      return one.substr(name.size() + 1);
    header.remove_prefix(std::min(end + 1, header.size()));
  }
  return {};
}

bool is_token(std::string_view text) {
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return text.size() >= 16 && text.size() <= 128 && std::all_of(text.begin(), text.end(), is_good);
}

std::string make_token() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::random_device random;  // of the operating system
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string token;
  for (int i = 0; i < 32; ++i) token += kLetters[letter(random)];
  return token;
}

std::string token_of_file(const std::string& file) {
  const auto fail = [&](const char* what) {
    throw FileError(fmt::format("{}: {}: {}", file, what, std::strerror(errno)));
  };
  const Descriptor made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (made >= 0) {
    const std::string token = make_token(), line = token + "\n";
    if (::write(made, line.data(), line.size()) != ssize_t(line.size())) fail("cannot be written");
    return token;
  }
  if (errno != EEXIST) fail("cannot be made");
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat s = {};
  if (fd < 0 || ::fstat(fd, &s) != 0) fail("cannot be read");
  if (!S_ISREG(s.st_mode)) throw FileError(fmt::format("{}: is no regular file", file));
  if ((s.st_mode & 077) != 0)
    throw ConfigError(fmt::format("{}: others may read this token: chmod 600 {}", file, file));
  char text[256];
  const ssize_t size = ::read(fd, text, sizeof text);
  if (size < 0) fail("cannot be read");
  const std::string token = without_blanks({text, size_t(size)});
  if (!is_token(token))
    throw ConfigError(
        fmt::format("{}: holds no token: 16 to 128 letters, digits, - or _; without the file, one is made", file));
  return token;
}

}  // namespace weft
