// Metrics in Prometheus's two text formats: the classic one, version 0.0.4, which node_exporter's
// textfile collector reads too, and OpenMetrics 1.0. Opens no port.
//
// prometheus-cpp's TextSerializer is not used: it has no OpenMetrics, and a second writer beside it
// would be longer than this one.
#pragma once

#include <string>
#include <string_view>

#include "headroom/watch/metrics.h"

namespace headroom::watch {

enum class TextFormat { classic, openmetrics };

// Families without series are left out.
[[nodiscard]] std::string prometheus_text(const Families& families,
                                          TextFormat format = TextFormat::classic);

// The format's Content-Type.
[[nodiscard]] const char* content_type(TextFormat format);

// The format that a client prefers, from its Accept header (RFC 9110, with weights). Classic unless
// it names OpenMetrics 1.0 and weighs it at least as high.
[[nodiscard]] TextFormat preferred_format(std::string_view accept);

}  // namespace headroom::watch
