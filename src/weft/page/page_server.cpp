// The one file that includes cpp-httplib. It reads requests and writes responses; sockets, limits, threads and access
// are dealt with here.
#include "weft/page/page_server.h"

#include <httplib.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/page/access.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr size_t kMostRequestBytes = 32 << 10;  // of a request's line and headers together
constexpr double kRequestS = 10, kWriteS = 10;  // for a request to come; for a viewer to take something
constexpr double kIdleS = 2;                    // until another request of the same connection begins
constexpr int kBacklog = 128;                   // connections that wait to be taken
constexpr double kStillHereS = 15;              // between comments in a stream in which nothing happens
constexpr int kPollMs = 100;                    // how soon a thread sees that the server stops
constexpr size_t kMostRequestsOfConnection = 1000;

// One viewer's connection, as cpp-httplib reads and writes it.
class Connection : public httplib::Stream {
 public:
  Connection(int socket, const std::atomic<bool>& stopping) : socket_(socket), stopping_(stopping) {}

  // Whether the beginning of a request is there.
  bool wait_for_request() {
    read_ = 0;
    deadline_s_ = now_s() + kRequestS;
    return begin_ < end_ || wait_for(POLLIN, now_s() + kIdleS);
  }

  bool is_readable() const override { return begin_ < end_ || ready(POLLIN, 0); }
  bool is_writable() const override {
    return !ready(POLLRDHUP | POLLHUP | POLLERR, 0) && wait_for(POLLOUT, now_s() + kWriteS);
  }
  ssize_t read(char* to, size_t size) override {
    if (begin_ == end_ && !fill()) {
      is_broken_ = true;
      return -1;
    }
    const size_t count = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, count, to);
    begin_ += count;
    read_ += count;
    is_broken_ |= read_ > kMostRequestBytes;
    return is_broken_ ? -1 : ssize_t(count);
  }
  bool is_broken() const { return is_broken_; }  // no further request can be read
  // All of it, or -1.
  ssize_t write(const char* from, size_t size) override {
    for (size_t done = 0; done < size;) {
      const ssize_t n = ::send(socket_, from + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        done += size_t(n);
        continue;
      }
      if (errno == EINTR) continue;
      if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_for(POLLOUT, now_s() + kWriteS)) return -1;
    }
    return ssize_t(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  bool fill() {
    if (!wait_for(POLLIN, deadline_s_)) return false;
    const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    begin_ = 0;
    end_ = n > 0 ? size_t(n) : 0;
    return n > 0;
  }
  bool ready(int events, int timeout_ms) const {
    pollfd one{.fd = socket_, .events = short(events), .revents = 0};
    return ::poll(&one, 1, timeout_ms) > 0 && (one.revents & (events | POLLERR | POLLHUP)) != 0;
  }
  bool wait_for(int events, double until_s) const {
    do {
      if (ready(events, kPollMs)) return true;
    } while (!stopping_ && now_s() < until_s);
    return false;
  }

  int socket_;
  const std::atomic<bool>& stopping_;
  std::array<char, 4096> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is in the buffer
  size_t read_ = 0;             // bytes of this request
  double deadline_s_ = 0;       // of this request
  bool is_broken_ = false;
};

// As many threads as there are connections at once, up to a bound. Nothing that a connection throws gets out.
class ConnectionThreads : public httplib::TaskQueue {
 public:
  // `no_more`: called where no further connection will come.
  explicit ConnectionThreads(std::function<void()> no_more) : no_more_(std::move(no_more)) {}
  ~ConnectionThreads() override { shutdown(); }
  using Result = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>()));

  Result enqueue(std::function<void()> connection) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ || waiting_.size() + busy_ < PageServer::kMostConnections; });
    waiting_.push_back(std::move(connection));
    if (waiting_.size() + busy_ > threads_.size()) start_one();
    if (threads_.empty()) {  // the system gives no thread at all
      const auto own = std::move(waiting_.back());
      waiting_.pop_back();
      lock.unlock();
      answer(own);
      return static_cast<Result>(true);
    }
    changed_.notify_all();
    return static_cast<Result>(true);
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    no_more_();
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

 private:
  void start_one() {
    try {
      threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {}  // those that there are do it
  }
  static void answer(const std::function<void()>& connection) {
    try {
      connection();
    } catch (...) {}  // a viewer's bad luck: the program goes on
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const auto connection = std::move(waiting_.front());
      waiting_.erase(waiting_.begin());
      ++busy_;
      lock.unlock();
      answer(connection);
      lock.lock();
      --busy_;
      changed_.notify_all();
    }
  }

  const std::function<void()> no_more_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  size_t busy_ = 0;
  bool ends_ = false;
};

class BoundedServer : public httplib::Server {
 public:
  std::atomic<bool> stopping{false};

  // More than cpp-httplib lets wait, between binding and listening.
  void let_wait(int connections) { ::listen(svr_sock_, connections); }

 private:
  bool process_and_close_socket(socket_t sock) override {
    ++connections_;
    try {
      answer(sock);
    } catch (...) {}  // it is closed all the same
    --connections_;
    ::shutdown(sock, SHUT_RDWR);
    ::close(sock);
    return true;
  }
  void answer(socket_t sock) {
    Connection connection(sock, stopping);
    for (size_t left = kMostRequestsOfConnection; left > 0 && !stopping && connection.wait_for_request(); --left) {
      // Connections that browsers keep for later must not take the places of those that ask now.
      const bool is_last = left == 1 || connections_ >= PageServer::kManyConnections;
      bool is_closed = false;
      if (!process_request(connection, is_last, is_closed, nullptr) || is_closed || is_last || connection.is_broken())
        break;
    }
  }

  std::atomic<size_t> connections_{0};
};

// Leaves the signals of the program as they are: threads that begin meanwhile get none, and what cpp-httplib does to
// SIGPIPE is undone.
class SignalsApart {
 public:
  SignalsApart() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask_);
    ::sigaction(SIGPIPE, nullptr, &on_pipe_);
  }
  SignalsApart(const SignalsApart&) = delete;
  ~SignalsApart() {
    ::sigaction(SIGPIPE, &on_pipe_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  sigset_t mask_ = {};
  struct sigaction on_pipe_ = {};
};

void send_answer(httplib::Response& response, PageAnswer answer) {
  response.status = answer.status;
  if (answer.body.empty()) return;
  // By a provider of known length: cpp-httplib would compress a body that is given whole, at a cost that a run bears.
  const auto body = std::make_shared<const std::string>(std::move(answer.body));
  response.set_content_provider(body->size(), answer.type,
                                [body](size_t offset, size_t length, httplib::DataSink& sink) {
                                  return sink.write(body->data() + offset, length);
                                });
}

PageAnswer refusal(int status, const std::string& why) {
  return {.status = status,
          .body = nlohmann::json{{"error", why}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

const httplib::Headers& headers_of_all() {
  static const httplib::Headers headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Cache-Control", "no-store"}};
  return headers;
}

}  // namespace

struct PageServer::Listener {
  Listener(LivePage& of, const Spec& how) : page(of), spec(how) {
    server.set_default_headers(headers_of_all());
    server.new_task_queue = [this] { return new ConnectionThreads([this] { let_streams_end(); }); };
    server.set_payload_max_length(kMostRequestBytes);
    // Without SO_REUSEPORT, by which another program could listen here too.
    server.set_socket_options([](socket_t sock) {
      const int yes = 1;
      ::setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  std::string cookie_name() const { return fmt::format("weft_{}", port); }

  bool knows_token(const httplib::Request& request) const {
    if (spec.token.empty()) return true;
    constexpr std::string_view kBearer = "Bearer ";
    const std::string bearer = request.get_header_value("Authorization");
    if (bearer.starts_with(kBearer) &&
        equal_in_constant_time(spec.token, std::string_view(bearer).substr(kBearer.size())))
      return true;
    return equal_in_constant_time(spec.token, request.get_param_value("token")) ||
           equal_in_constant_time(spec.token, cookie_in(request.get_header_value("Cookie"), cookie_name()));
  }

  // Why it is not answered at all.
  std::optional<PageAnswer> refused(const httplib::Request& request, httplib::Response& response) const {
    if (request.method != "GET") {
      response.set_header("Allow", "GET");
      response.set_header("Connection", "close");  // a body would be taken for the next request
      return refusal(405, "only GET: the page changes nothing");
    }
    if (request.has_header("Range")) return PageAnswer{.status = 400};
    // With a token no page of another name can ask: its cookie is of the name that the viewer opened, which may be that
    // of a proxy.
    if (spec.token.empty() && !is_known_host(request.get_header_value("Host"), spec.address, name_of_host()))
      return refusal(403, fmt::format("this host name is not known here: open http://127.0.0.1:{}/, or use the "
                                      "machine's IP address or name",
                                      port));
    if (!knows_token(request))
      return refusal(403, "a token is needed: open the address that weft printed, which ends with ?token=...");
    return {};
  }

  void answer(const httplib::Request& request, httplib::Response& response) {
    if (auto no = refused(request, response)) return send_answer(response, std::move(*no));
    if (request.path == "/" && !spec.token.empty() && request.has_param("token")) {
      response.set_header("Set-Cookie",
                          fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_name(), spec.token));
      // No redirect: that of a link on another site would go without the cookie.
      return send_answer(response, {.type = "text/html; charset=utf-8",
                                    .body = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
                                            "http-equiv=\"refresh\" content=\"0;url=/\"><title>weft</title></head>"
                                            "<body><a href=\"/\">weft</a></body></html>\n"});
    }
    if (request.path == "/api/stream") return stream(response);
    LivePage::Params params;
    for (const auto& [name, value] : request.params) params.emplace(name, value);
    send_answer(response, page.answer(request.path, params));
  }

  struct Viewer {
    int64_t seen = 0;
    double last_s = 0;  // that something was sent
  };

  // Runs on the connection's thread until the viewer goes or the server stops.
  void stream(httplib::Response& response) {
    response.status = 200;
    response.set_header("X-Accel-Buffering", "no");
    response.set_chunked_content_provider("text/event-stream",
                                          [this, viewer = std::make_shared<Viewer>()](size_t, httplib::DataSink& sink) {
                                            try {
                                              return send_news(*viewer, sink);
                                            } catch (...) { return false; }  // cpp-httplib would let it out
                                          });
  }
  // Whether the viewer is still there.
  bool send_news(Viewer& viewer, httplib::DataSink& sink) {
    if (viewer.last_s > 0) wait(spec.stream_each_s);
    if (server.stopping) return false;
    std::string text;
    if (const std::string news = page.news(viewer.seen); !news.empty())
      text = "event: runs\ndata: " + news + "\n\n";
    else if (now_s() - viewer.last_s > kStillHereS)
      text = ": still here\n\n";
    if (text.empty()) return !sink.is_writable || sink.is_writable();
    viewer.last_s = now_s();
    return sink.write(text.data(), text.size());
  }

  void wait(double seconds) {
    std::unique_lock lock(mutex);
    stops.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return server.stopping.load(); });
  }

  void start() {
    port = spec.port == 0 ? server.bind_to_any_port(spec.address) : spec.port;
    if (port <= 0 || (spec.port != 0 && !server.bind_to_port(spec.address, spec.port)))
      throw Error(fmt::format("the live page cannot be served at {}, port {}: {}", spec.address, spec.port,
                              spec.port == 0 ? "is that an address of this machine?"
                                             : "another program has it, or the address is not this machine's; port 0 "
                                               "takes one that is free"));
    server.let_wait(kBacklog);
    thread = std::thread([this] {
      constexpr int kLowest = 19;
      if (spec.in_a_run) ::setpriority(PRIO_PROCESS, 0, kLowest);  // of this thread and those that it starts
      try {
        server.listen_after_bind();
      } catch (...) {}
      let_streams_end();
      has_ended = true;
    });
  }
  // Where no further connection comes: asked for, or because the system gives none.
  void let_streams_end() {
    bool is_asked_for = false;
    {
      const std::lock_guard lock(mutex);
      is_asked_for = server.stopping.exchange(true);
      accepts = false;
    }
    stops.notify_all();
    page.stop();
    if (!is_asked_for && spec.on_end) spec.on_end();
  }
  void stop() {
    bool is_open = false;
    {
      const std::lock_guard lock(mutex);
      server.stopping = true;
      is_open = accepts;
    }
    stops.notify_all();
    page.stop();
    // Once, and not before it has begun: else it would not stop, or fail an assertion. Where it has ended by itself,
    // its socket is closed.
    while (is_open && !server.is_running() && !has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (is_open) server.stop();
    thread.join();
  }

  LivePage& page;
  const Spec spec;
  BoundedServer server;
  int port = 0;
  std::mutex mutex;
  std::condition_variable stops;
  bool accepts = true;  // connections
  std::atomic<bool> has_ended{false};
  std::thread thread;
};

PageServer::PageServer(LivePage& page, const Spec& spec) {
  if (!is_loopback(spec.address) && spec.token.empty())
    throw ConfigError(fmt::format(
        "--address {}: other machines could look at the page there, so it needs a token; the nearest that works: "
        "--token-file FILE (it is made if it is not there)",
        spec.address));
  WEFT_CHECK(spec.token.empty() || is_token(spec.token), "{} bytes are no token", spec.token.size());
  const SignalsApart apart;
  listener_ = std::make_unique<Listener>(page, spec);
  listener_->start();
}

PageServer::~PageServer() { listener_->stop(); }

int PageServer::port() const { return listener_->port; }

std::string PageServer::url() const {
  const Spec& spec = listener_->spec;
  std::string host = spec.address;
  if (host == "0.0.0.0" || host == "::") host = name_of_host();
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("http://{}:{}/{}", host, port(), spec.token.empty() ? "" : "?token=" + spec.token);
}

}  // namespace weft
