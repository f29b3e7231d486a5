// What was alive at a moment of a trace: the biggest tensors, and sums by module, operator,
// category. The moment is the peak of live bytes, unless another is named. Read once, front to
// back; what is kept is what lives, and what lived at the highest peak so far.
//
//   const Top top = top_of(*trace);
//   for (const Tensor& tensor : top.tensors) say(top.names.text(tensor.module), tensor.bytes);
//
// Live bytes are what the program asked for and had not freed: without rounding, cached blocks and
// fragmentation, so less than `allocated` of a replay.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/trace/reader.h"

namespace headroom::trace {

struct Tensor {
  std::uint64_t address = 0;  // or the id, in the plain form
  std::uint64_t event = 0;    // the number of the event that allocated it
  Bytes bytes;
  Name module = 0;
  Name operation = 0;
  Category category = Category::unknown;
  Phase phase = Phase::unknown;
  std::uint32_t step = 0;
};

struct TopOptions {
  enum class At { peak, end, event } at = At::peak;
  std::uint64_t event = 0;                           // with At::event: after this one
  std::optional<std::uint16_t> device = {};          // nothing: the first that appears
  std::function<void(const Reader&)> progress = {};  // from time to time
};

struct Top {
  std::uint64_t event = 0;  // the moment: after the event of this number
  Bytes live;
  std::vector<Tensor> tensors;  // the biggest first
  Names names;
  std::uint64_t events = 0;  // read
  std::optional<std::uint16_t> device;
  std::vector<std::uint16_t> devices;
  std::uint64_t unknown_frees = 0;  // of what was allocated before the recording began
};

// Throws UsageError if the event or the device does not exist.
[[nodiscard]] Top top_of(Reader& trace, const TopOptions& options = {});

// Sums over the tensors, the biggest first.
struct Share {
  std::string name;  // "" where the trace does not say
  Bytes bytes;
  std::uint64_t tensors = 0;
};
enum class Grouping { module, operation, category };
// Modules are cut after `depth` parts ("transformer.h" of "transformer.h.3.attn" at 2); 0: whole.
[[nodiscard]] std::vector<Share> shares(const Top& top, Grouping grouping, int depth = 0);

}  // namespace headroom::trace
