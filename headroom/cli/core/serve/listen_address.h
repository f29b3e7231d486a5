// The address of `--listen [ADDRESS]:PORT`, and a socket that listens there.
#pragma once

#include <string>
#include <string_view>

#include "headroom/base/descriptor.h"

namespace headroom::cli {

struct ListenAddress {
  std::string host;  // loopback unless an address is given
  int port = 0;      // 0: the system chooses one
};

// ":9400", "0.0.0.0:9400", "[::]:9400", "localhost:9400". Throws UsageError.
[[nodiscard]] ListenAddress parse_listen_address(std::string_view text);

// Throws BusyError for a port in use, UsageError for an address that this machine does not have,
// WriteError for all else (no permission for a port below 1024).
[[nodiscard]] Descriptor listen_at(const ListenAddress& address);

// "http://127.0.0.1:9400", with the port that the system chose.
[[nodiscard]] std::string url_of(const Descriptor& listening);

}  // namespace headroom::cli
