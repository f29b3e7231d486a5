// A small HTTP server for pages that are made in a moment: GET and HEAD, one request a connection.
//
// httplib reads requests and writes answers. This class decides how much the clients may cost: a
// fixed number of threads, a bounded number of connections that wait for one (the oldest is closed
// when another comes), and the bounds of client_stream.h. Nothing is kept alive: a connection on a
// local network costs a scraper less than an idle one costs a thread.
//
// Threads: `answer` is called by several at once. The destructor ends all connections and waits for
// calls of `answer` that have begun.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "headroom/base/descriptor.h"

namespace headroom::cli {

struct HttpRequest {
  std::string path;    // "/metrics", without the query
  std::string accept;  // the header, or "" without it
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  using Answer = std::function<HttpAnswer(const HttpRequest&)>;
  // `listening` is a socket that does not block.
  HttpServer(Descriptor listening, Answer answer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace headroom::cli
