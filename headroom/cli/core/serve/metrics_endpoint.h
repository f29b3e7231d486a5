// The pages of `headroom log --listen`: /metrics for Prometheus, /healthz for programs that
// restart a broken service or report it, and / with links to both.
//
// A page is made from the sampler's latest data when it is asked for. Making it never waits for the
// driver, and ages are those of that moment.
#pragma once

#include <functional>
#include <string>

#include "headroom/base/descriptor.h"
#include "headroom/cli/core/serve/http_server.h"
#include "headroom/gpu/machine.h"
#include "headroom/watch/metrics.h"

namespace headroom::cli {

class MetricsEndpoint {
 public:
  // `latest` returns the latest data at once; several threads call it.
  using Latest = std::function<gpu::Machine()>;
  // `address` as for listen_address.h, whose exceptions it throws.
  MetricsEndpoint(const std::string& address, watch::MetricsOptions options, Latest latest);

  [[nodiscard]] const std::string& url() const { return url_; }  // "http://127.0.0.1:9400"

 private:
  MetricsEndpoint(Descriptor listening, HttpServer::Answer answer);

  std::string url_;
  HttpServer server_;
};

// One line, and 503 for a driver that hangs or has not answered for longer than `fresh_for`.
// A machine without a driver is healthy: nothing there can be repaired by a restart.
[[nodiscard]] HttpAnswer health_of(const gpu::Machine& machine, Seconds fresh_for,
                                   Clock::time_point now = Clock::now());

}  // namespace headroom::cli
