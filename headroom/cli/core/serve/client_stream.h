// A connection as httplib reads and writes it, with bounds that no client can stretch: the whole
// request within a time and a size, the whole answer within a time.
//
// httplib's own timeouts bound each read; a client that sends a byte a second would keep a thread
// for hours.
#pragma once

// In the library itself everything that this header can switch on is on; the Cflags of
// cpp-httplib.pc switch it on here, too.
#include <httplib.h>

#include <array>
#include <optional>

#include "headroom/base/time.h"

namespace headroom::cli {

struct ClientBounds {
  Seconds request{2.0};  // from accepting the connection to the last byte of the request
  Seconds answer{5.0};   // from the first byte of the answer to the last
  std::size_t request_bytes = 8192;
};

class ClientStream : public httplib::Stream {
 public:
  // To end reads and writes at once, shut down the socket.
  ClientStream(int socket, Clock::time_point accepted, const ClientBounds& bounds = {})
      : socket_(socket), accepted_(accepted), bounds_(bounds) {}

  // Ends the answer and drops the bytes that the client has sent beyond the request: closing a
  // connection with unread bytes would take the answer back.
  void finish() const;

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  // The addresses would only become headers of the request, which are not used.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  [[nodiscard]] bool fill();
  [[nodiscard]] bool wait_for(short events, Clock::time_point deadline) const;

  int socket_;
  Clock::time_point accepted_;
  ClientBounds bounds_;
  std::array<char, 4096> buffer_{};  // httplib reads byte by byte
  std::size_t begin_ = 0, end_ = 0, received_ = 0;
  std::optional<Clock::time_point> answer_due_;
};

}  // namespace headroom::cli
