// The live tensors at one moment of a trace: the biggest ones, and sums by module, operator and
// category. The moment is the peak of live bytes, unless the options name another. Reads the trace
// once, front to back; keeps only live tensors and those that were live at the highest peak so far.
//
//   const Top top = top_of(*trace);
//   for (const Tensor& tensor : top.tensors) say(top.names.text(tensor.module), tensor.bytes);
//
// Live bytes are the bytes that the program requested and has not freed. They exclude rounding,
// cached blocks and fragmentation, so they do not exceed a replay's `allocated`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/trace/operations.h"

namespace headroom::trace {

struct Tensor {
  std::uint64_t address = 0;  // in the plain format, the id
  std::uint64_t event = 0;    // number of the event that allocated it
  Bytes bytes;
  Name module = 0;
  Name operation = 0;
  Name line = 0;
  Category category = Category::unknown;
  Phase phase = Phase::unknown;
  std::uint32_t step = 0;
};

struct TopOptions {
  enum class At { peak, end, event } at = At::peak;
  std::uint64_t event = 0;                   // with At::event: the moment is after this event
  std::optional<std::uint16_t> device = {};  // std::nullopt: the first device that appears
  std::function<void(const Reader&)> progress = {};  // called every 65536 events
};

struct Top {
  std::uint64_t event = 0;  // the moment is after the event of this number
  Bytes live;
  std::vector<Tensor> tensors;  // biggest first
  Names names;
  Noticed noticed;
};

// Throws UsageError if the event or the device does not exist.
[[nodiscard]] Top top_of(Reader& trace, const TopOptions& options = {});

// A sum over tensors; lists have the biggest first.
struct Share {
  std::string name;  // "" if the trace does not say
  Bytes bytes;
  std::uint64_t tensors = 0;
};
enum class Grouping { module, operation, line, category };
// Cuts module paths after `depth` parts ("transformer.h" of "transformer.h.3.attn" at 2); 0: whole.
[[nodiscard]] std::vector<Share> shares(const Top& top, Grouping grouping, int depth = 0);

}  // namespace headroom::trace
