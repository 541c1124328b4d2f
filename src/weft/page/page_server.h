// The live page over HTTP.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "weft/page/live_page.h"

namespace weft {

class PageServer {
 public:
  struct Spec {
    std::string address = "127.0.0.1";
    int port = 0;            // 0: one that is free
    std::string token = {};  // is_token; who does not know it sees nothing. Empty: everybody on this machine may look
    bool in_a_run = false;   // of a process that trains: its threads give way to all others, and take no signals
    double stream_each_s = 0.5;  // messages of /api/stream to one viewer
    // Called once, on a thread of the server's, where it can take no further connections and so answers nobody any
    // more; not where it is destroyed. Must not throw.
    std::function<void()> on_end = {};
  };
  // Listens, and answers on threads of its own until it is destroyed, which takes less than a second, or until a plan
  // that somebody has just asked for is computed (LivePage::Spec::plan). `page` outlives it, and is stopped with it. At
  // most kMostConnections at once; further ones wait, and where there are kManyConnections, each is closed behind its
  // answer. Throws ConfigError where the address is not of this
  // machine alone and there is no token, Error where it cannot listen there. In a build without cpp-httplib: NotBuilt.
  PageServer(LivePage& page, const Spec& spec);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  static constexpr size_t kMostConnections = 160, kManyConnections = 100;
  int port() const;
  std::string url() const;  // with the token, if there is one

 private:
  struct Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace weft
