#include "headroom/cli/core/serve/listen_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

constexpr int kBacklog = 128;  // connections that the kernel keeps until they are accepted

[[noreturn]] void refuse(std::string_view received) {
  throw UsageError(expectation("--listen", "[ADDRESS]:PORT, with IPv6 addresses in brackets",
                               received, ":9400"));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0)
    throw UsageError(expectation("--listen", "an address of this machine",
                                 address.host + " (" + ::gai_strerror(error) + ")"));
  return {found, &::freeaddrinfo};
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

// An open descriptor, or none with the reason in errno.
Descriptor listening_socket(const addrinfo& address) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return {};
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // not SO_REUSEPORT, which shares a port in use
  if (address.ai_family == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const bool listens = ::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 &&
                       ::listen(socket.get(), kBacklog) == 0;
  if (listens) return socket;
  const int error = errno;
  socket.close();
  errno = error;
  return {};
}

[[noreturn]] void throw_reason(const ListenAddress& address, int error) {
  const std::string where = "port " + std::to_string(address.port) + " of " + address.host;
  if (error == EADDRINUSE)
    throw BusyError("--listen", where + " is in use; try another port, or :0 for any free one");
  if (error == EADDRNOTAVAIL)
    throw UsageError(expectation("--listen", "an address of this machine", address.host));
  throw WriteError("--listen", "cannot listen on " + where + ": " + std::strerror(error));
}

}  // namespace

ListenAddress parse_listen_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse(text);
  std::string_view host = text.substr(0, colon);
  const auto port = to_integer(text.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535) refuse(text);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find_first_of(":[]") != std::string_view::npos) refuse(text);
  return {.host = host.empty() ? "127.0.0.1" : std::string(host), .port = static_cast<int>(*port)};
}

Descriptor listen_at(const ListenAddress& address) {
  const Addresses addresses = addresses_of(address);
  int error = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    Descriptor socket = listening_socket(*one);
    if (socket.is_open()) return socket;
    error = errno;
  }
  throw_reason(address, error);
}

std::string url_of(const Descriptor& listening) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(listening.get(), plain, &size) != 0 ||
      ::getnameinfo(plain, size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  const bool is_v6 = address.ss_family == AF_INET6;
  return std::string("http://") + (is_v6 ? "[" : "") + host.data() + (is_v6 ? "]:" : ":") +
         port.data();
}

}  // namespace headroom::cli
