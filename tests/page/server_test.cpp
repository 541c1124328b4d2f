// The page over HTTP: who may look, what every answer has, streams, many viewers, and an end that comes soon.
#include "weft/page/page_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "page/http_viewer.h"
#include "page/watched_runs.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::http;
using testing::HttpReply;
using testing::HttpViewer;
using testing::TempDir;

constexpr const char* kToken = "0123456789abcdef-TOKEN";

class Server : public ::testing::Test {
 protected:
  Server() : run_(testing::make_run(dir_ / "<script>")) {}
  void start(PageServer::Spec spec = {}) {
    LivePage::Spec page = testing::watched({run_});
    page.refresh_each_s = 0.01;
    page_ = std::make_unique<LivePage>(std::move(page));
    spec.stream_each_s = 0.02;
    server_ = std::make_unique<PageServer>(*page_, spec);
  }
  int port() const { return server_->port(); }
  HttpReply get(const std::string& path, const std::string& headers = "Host: 127.0.0.1\r\n") const {
    return http(port(), path, headers);
  }
  TempDir dir_;
  const fs::path run_;
  std::unique_ptr<LivePage> page_;
  std::unique_ptr<PageServer> server_;
};

TEST_F(Server, AnswersWhatThePageAnswersWithHeadersThatKeepItApart) {
  start();
  EXPECT_EQ(server_->url(), "http://127.0.0.1:" + std::to_string(port()) + "/");
  const HttpReply runs = get("/api/runs");
  EXPECT_EQ(runs.status, 200);
  EXPECT_EQ(json::parse(runs.body)["runs"][0]["name"], "<script>");
  EXPECT_SAYS(runs.head, "application/json");
  for (const char* path : {"/", "/api/runs", "/api/run?run=0", "/metrics", "/nothing", "/api/run?run=7"}) {
    const HttpReply reply = get(path);
    EXPECT_SAYS(reply.head, "Content-Security-Policy: default-src 'none'; script-src 'self'");
    EXPECT_SAYS(reply.head, "X-Content-Type-Options: nosniff");
    EXPECT_EQ(reply.head.find("unsafe-inline"), std::string::npos);
    EXPECT_EQ(reply.head.find("Access-Control-"), std::string::npos);
  }
  EXPECT_EQ(get("/").body.find("<script>"), std::string::npos);
  EXPECT_EQ(get("/nothing").status, 404);
  EXPECT_EQ(get("/api/run?run=7").status, 400);
  EXPECT_EQ(json::parse(get("/api/curves?run=0&names=loss%2Clr&from=2&to=3").body)["curves"][0]["steps"], json({2, 3}));
  const HttpReply squeezed = get("/api/runs", "Host: localhost\r\nAccept-Encoding: gzip, br\r\n");
  EXPECT_EQ(squeezed.head.find("Content-Encoding"), std::string::npos) << "a run would pay for it";
}

TEST_F(Server, OnlyReadsAndOnlyByKnownNames) {
  start();
  const auto before = testing::bytes_of_folder(run_);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"})
    EXPECT_EQ(http(port(), "/api/runs", "Host: 127.0.0.1\r\nContent-Length: 0\r\n", method).status, 405) << method;
  EXPECT_EQ(get("/api/runs", "Host: evil.example\r\n").status, 403);
  EXPECT_EQ(get("/api/runs", "").status, 403);
  EXPECT_EQ(get("/api/runs", "Host: localhost:1\r\n").status, 200) << "a tunnel";
  EXPECT_EQ(get("/api/runs", "Host: " + name_of_host() + "\r\n").status, 200);
  EXPECT_EQ(get("/api/runs", "Host: 127.0.0.1\r\nRange: bytes=0-1,0-1\r\n").status, 400);
  EXPECT_EQ(testing::bytes_of_folder(run_), before);
}

TEST_F(Server, ShowsNothingWithoutItsToken) {
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { start({.address = "0.0.0.0"}); }), "--token-file");
  start({.address = "0.0.0.0", .token = kToken});
  const std::string host = "Host: 127.0.0.1\r\n";
  const std::string cookie = "weft_" + std::to_string(port()) + "=";
  for (const char* path : {"/", "/api/runs", "/api/stream", "/metrics", "/?token=0123456789abcdef-tOKEN",
                           "/?token=", "/?token=0123456789abcdef-TOKE"}) {
    const HttpReply reply = get(path);
    EXPECT_EQ(reply.status, 403) << path;
    EXPECT_SAYS(reply.body, "token is needed");
  }
  EXPECT_EQ(get("/api/runs", host + "Cookie: " + cookie + "0123456789abcdef-TOKEX\r\n").status, 403);
  const HttpReply first = get(std::string("/?token=") + kToken);
  EXPECT_EQ(first.status, 200);
  EXPECT_SAYS(first.head, "Set-Cookie: " + cookie + kToken + "; Path=/; HttpOnly; SameSite=Strict\r\n");
  EXPECT_EQ(first.body.find(kToken), std::string::npos);
  EXPECT_EQ(get("/api/runs", host + "Cookie: a=b; " + cookie + kToken + "\r\n").status, 200);
  EXPECT_EQ(get("/metrics", host + "Authorization: Bearer " + kToken + "\r\n").status, 200);
  EXPECT_EQ(get(std::string("/metrics?token=") + kToken).status, 200);
  EXPECT_SAYS(server_->url(), std::string("/?token=") + kToken);
  EXPECT_EQ(get(std::string("/metrics?token=") + kToken, "Host: proxy.example\r\n").status, 200) << "behind a proxy";
}

TEST_F(Server, BoundsWhatARequestMayBe) {
  start();
  EXPECT_GE(get("/" + std::string(20'000, 'a')).status, 400);
  std::string headers = "Host: 127.0.0.1\r\n";
  for (int i = 0; i < 5000; ++i) headers += "A" + std::to_string(i) + ": 0123456789\r\n";
  EXPECT_NE(get("/api/runs", headers).status, 200);
  HttpViewer nonsense(port());
  nonsense.send(std::string(100, '\0') + "\xff\r\n\r\n");
  EXPECT_SAYS(nonsense.read_until("\r\n"), " 400 ");
  HttpViewer silent(port());  // stays connected, and says nothing
  EXPECT_EQ(get("/api/runs").status, 200);
}

TEST_F(Server, StreamsNewsToFiftyViewers) {
  start();
  std::vector<std::unique_ptr<HttpViewer>> viewers;
  for (int i = 0; i < 50; ++i) {
    viewers.push_back(std::make_unique<HttpViewer>(port()));
    viewers.back()->send("GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  for (const auto& viewer : viewers) {
    const std::string first = viewer->read_until("\n\n");
    EXPECT_SAYS(first, "text/event-stream");
    EXPECT_SAYS(first, "event: runs\ndata: {");
    EXPECT_SAYS(first, "\"step\":4,");
  }
  testing::append_text(run_ / "metrics.jsonl", to_json(StepRecord{.step = 5, .loss = 1.25}) + "\n");
  for (const auto& viewer : viewers) EXPECT_SAYS(viewer->read_until("\n\n"), "\"loss\":1.25");
  EXPECT_EQ(get("/api/runs").status, 200) << "beside them";
  viewers.clear();
}

TEST_F(Server, EndsSoonWhateverViewersDo) {
  start();
  HttpViewer idle(port()), half(port()), streams(port());
  half.send("GET /api/runs HTTP/1.1\r\nHost: loc");
  streams.send("GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  streams.read_until("\n\n");
  const double began = now_s();
  server_.reset();
  EXPECT_LT(now_s() - began, 3);
}

TEST_F(Server, ClosesConnectionsBehindAnswersWhereThereAreMany) {
  start();
  const auto head_of = [&] {
    HttpViewer viewer(port());
    viewer.send("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return viewer.read_until("\r\n\r\n");
  };
  EXPECT_EQ(head_of().find("Connection: close"), std::string::npos);
  std::vector<std::unique_ptr<HttpViewer>> viewers;
  for (size_t i = 0; i < PageServer::kManyConnections; ++i) viewers.push_back(std::make_unique<HttpViewer>(port()));
  for (const auto& viewer : viewers) viewer->send("GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  for (const auto& viewer : viewers) viewer->read_until("\n\n");
  EXPECT_SAYS(head_of(), "Connection: close");
}

// As the system does where it gives no connections any more.
void end_listening(int port) {
  for (int fd = 3; fd < 4096; ++fd) {
    int listens = 0;
    sockaddr_in at = {};
    socklen_t size = sizeof listens, at_size = sizeof at;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &at_size) != 0 || ntohs(at.sin_port) != port) continue;
    ::shutdown(fd, SHUT_RDWR);
  }
}

TEST_F(Server, TellsThatItHasEnded) {
  std::atomic<int> ends{0};
  start({.on_end = [&] { ++ends; }});
  HttpViewer streams(port());
  streams.send("GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  streams.read_until("\n\n");
  end_listening(port());
  const double began = now_s();
  while (ends == 0 && now_s() - began < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ends, 1);
  server_.reset();
  EXPECT_EQ(ends, 1);
  start({.on_end = [&] { ++ends; }});
  EXPECT_EQ(get("/api/runs").status, 200);
  server_.reset();
  EXPECT_EQ(ends, 1) << "it was asked to end";
}

TEST_F(Server, SaysThatAPortIsTaken) {
  start();
  const std::string error = testing::error_of<Error>([&] { PageServer(*page_, {.port = port()}); });
  EXPECT_SAYS(error, "another program has it");
}

TEST_F(Server, LeavesTheSignalsOfTheProgramAsTheyAre) {
  struct sigaction before = {}, after = {};
  ::sigaction(SIGPIPE, nullptr, &before);
  start({.in_a_run = true});
  ::sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGTERM), 0);
  EXPECT_EQ(get("/api/runs").status, 200);
}

}  // namespace
}  // namespace weft
