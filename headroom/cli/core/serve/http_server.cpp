#include "headroom/cli/core/serve/http_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "headroom/cli/core/serve/client_stream.h"

namespace headroom::cli {
namespace {

constexpr int kThreads = 4;
constexpr std::size_t kMostWaiting = 256;

// httplib's server without its sockets and threads: the protocol only. From its constructor on the
// process ignores SIGPIPE.
class Protocol : public httplib::Server {
 public:
  explicit Protocol(HttpServer::Answer answer) : answer_(std::move(answer)) {
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return respond(request, response);
    });
    set_exception_handler([](const httplib::Request&, httplib::Response& response,
                             std::exception_ptr error) { fail(response, error); });
  }

  void serve(ClientStream& stream) {
    bool closed = false;
    // No parts of a page, and no compression, which costs more than the local bytes that it saves.
    const auto plainly = [](httplib::Request& request) {
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
    };
    process_request(stream, true, closed, plainly);
    stream.finish();
  }

 private:
  HandlerResponse respond(const httplib::Request& request, httplib::Response& response) const {
    HttpAnswer answer;
    if (request.method == "GET" || request.method == "HEAD") {
      answer = answer_({request.path, request.get_header_value("Accept")});
    } else {
      response.set_header("Allow", "GET, HEAD");
      answer = {.status = 405, .body = "only GET and HEAD\n"};
    }
    response.status = answer.status;
    response.set_content(answer.body, answer.type);
    return HandlerResponse::Handled;
  }

  static void fail(httplib::Response& response, const std::exception_ptr& error) {
    response.status = 500;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& reason) {
      response.set_content(std::string(reason.what()) + "\n", "text/plain; charset=utf-8");
    } catch (...) {
      response.set_content("an unknown failure\n", "text/plain; charset=utf-8");
    }
  }

  HttpServer::Answer answer_;
};

struct Client {
  Descriptor socket;
  Clock::time_point accepted;
};

}  // namespace

class HttpServer::Work {
 public:
  Work(Descriptor listening, Answer answer)
      : listening_(std::move(listening)), protocol_(std::move(answer)) {
    for (int n = 0; n < kThreads; ++n)
      threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
    threads_.emplace_back([this](const std::stop_token& stop) { accept(stop); });
  }

  ~Work() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

 private:
  void accept(const std::stop_token& stop) {
    const std::stop_callback wake(stop, [this] { ::shutdown(listening_.get(), SHUT_RDWR); });
    while (!stop.stop_requested()) {
      pollfd one{listening_.get(), POLLIN, 0};
      ::poll(&one, 1, -1);
      Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.is_open()) {
        enqueue({std::move(socket), Clock::now()});
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until other clients end
      }
    }
  }

  void enqueue(Client client) {
    const std::lock_guard lock(guard_);
    if (waiting_.size() >= kMostWaiting) waiting_.pop_front();
    waiting_.push_back(std::move(client));
    arrived_.notify_one();
  }

  std::optional<Client> next(const std::stop_token& stop) {
    std::unique_lock lock(guard_);
    if (!arrived_.wait(lock, stop, [this] { return !waiting_.empty(); })) return {};
    if (stop.stop_requested()) return {};
    Client client = std::move(waiting_.front());
    waiting_.pop_front();
    return client;
  }

  void serve(const std::stop_token& stop) {
    while (const auto client = next(stop)) {
      const int socket = client->socket.get();
      const std::stop_callback end(stop, [socket] { ::shutdown(socket, SHUT_RDWR); });
      ClientStream stream(socket, client->accepted);
      protocol_.serve(stream);
    }
  }

  Descriptor listening_;
  Protocol protocol_;
  std::mutex guard_;
  std::condition_variable_any arrived_;
  std::deque<Client> waiting_;
  std::vector<std::jthread> threads_;  // end before all else here
};

HttpServer::HttpServer(Descriptor listening, Answer answer)
    : work_(std::make_unique<Work>(std::move(listening), std::move(answer))) {}

HttpServer::~HttpServer() = default;

}  // namespace headroom::cli
