// Somebody who looks at the page, byte by byte: what a library for clients would not send must be answered too.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "weft/base/descriptor.h"
#include "weft/records/clock.h"

namespace weft::testing {

class HttpViewer {
 public:
  explicit HttpViewer(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("nothing listens there");
  }
  void send(const std::string& text) { (void)!::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Reads until `end` has come, or the connection is closed (also where `end` is empty), or 10 s have passed. Returns
  // all that came since the last call.
  std::string read_until(const std::string& end = "") {
    const double until = now_s() + 10;
    std::string all;
    while (now_s() < until && (end.empty() || all.find(end) == std::string::npos)) {
      pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, 100) <= 0) continue;
      char buffer[65536];
      const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      all.append(buffer, size_t(n));
    }
    return all;
  }

 private:
  Descriptor socket_;
};

struct HttpReply {
  int status = 0;  // 0: none came
  std::string head, body;
};
// `headers`: whole lines.
inline HttpReply http(int port, const std::string& path, const std::string& headers = "Host: 127.0.0.1\r\n",
                      const std::string& method = "GET") {
  HttpViewer viewer(port);
  viewer.send(method + " " + path + " HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n");
  const std::string all = viewer.read_until();
  const size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos || all.size() < 12) return {};
  return {.status = std::atoi(all.c_str() + 9), .head = all.substr(0, end + 2), .body = all.substr(end + 4)};
}

}  // namespace weft::testing
