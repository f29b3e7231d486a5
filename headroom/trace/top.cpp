#include "headroom/trace/top.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/trace/detail/fault.h"

namespace headroom::trace {
namespace {

constexpr std::uint64_t kEventsBetweenProgress = 65536;

Tensor tensor_of(const Event& event, std::uint64_t number) {
  return {.address = event.address,
          .event = number,
          .bytes = event.bytes,
          .module = event.module,
          .operation = event.operation,
          .line = event.line,
          .category = event.category,
          .phase = event.phase,
          .step = event.step};
}

// The live tensors now and at the peak. Those at the peak are the tensors allocated by then that
// are still live, plus those freed since.
class Living {
 public:
  void allocate(const Event& event, std::uint64_t number) {
    free(event.address);  // its free was not recorded
    Tensor tensor = tensor_of(event, number);
    tensor.bytes = std::min(tensor.bytes, Bytes{detail::kMostLiveBytes} - now_);
    now_ += tensor.bytes;
    live_.emplace(event.address, tensor);
    if (now_ <= peak_) return;
    peak_ = now_;
    peak_event_ = number;
    freed_since_.clear();
  }

  bool free(std::uint64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return false;
    now_ -= found->second.bytes;
    if (found->second.event <= peak_event_) freed_since_.push_back(found->second);
    live_.erase(found);
    return true;
  }

  [[nodiscard]] std::vector<Tensor> now() const {
    std::vector<Tensor> tensors;
    for (const auto& [address, tensor] : live_) tensors.push_back(tensor);
    return tensors;
  }

  [[nodiscard]] std::vector<Tensor> at_peak() const {
    std::vector<Tensor> tensors = freed_since_;
    for (const auto& [address, tensor] : live_)
      if (tensor.event <= peak_event_) tensors.push_back(tensor);
    return tensors;
  }

  [[nodiscard]] std::uint64_t peak_event() const { return peak_event_; }

 private:
  std::unordered_map<std::uint64_t, Tensor> live_;
  std::vector<Tensor> freed_since_;  // alive at the peak
  Bytes now_, peak_;
  std::uint64_t peak_event_ = 0;
};

void check(const TopOptions& options, const Noticed& noticed) {
  if (options.at == TopOptions::At::event && options.event >= noticed.events)
    throw UsageError(expectation("top", "an event below " + std::to_string(noticed.events),
                                 std::to_string(options.event), "peak or end"));
  const auto& devices = noticed.devices;
  if (options.device && !devices.empty() &&
      std::find(devices.begin(), devices.end(), *options.device) == devices.end())
    throw UsageError(expectation("top", "a device of the trace", std::to_string(*options.device),
                                 std::to_string(devices.front())));
}

std::string cut(std::string_view module, int depth) {
  std::size_t end = 0;
  for (int i = 0; i < depth && end != std::string_view::npos; ++i)
    end = module.find('.', i == 0 ? 0 : end + 1);
  return std::string(depth == 0 ? module : module.substr(0, end));
}

std::string name_of(const Top& top, const Tensor& tensor, Grouping grouping, int depth) {
  switch (grouping) {
    case Grouping::module:
      return cut(top.names.text(tensor.module), depth);
    case Grouping::operation:
      return std::string(top.names.text(tensor.operation));
    case Grouping::line:
      return std::string(top.names.text(tensor.line));
    case Grouping::category:
      return tensor.category == Category::unknown ? "" : std::string(to_string(tensor.category));
  }
  throw InternalError(expectation("top", "a grouping", "another"));
}

}  // namespace

Top top_of(Reader& trace, const TopOptions& options) {
  Top top;
  Noticed& noticed = top.noticed;
  noticed.device = options.device;
  Living living;
  const bool stops = options.at == TopOptions::At::event;
  for (Event event; trace.next(event);) {
    const std::uint64_t number = noticed.events++;
    if (!has_text(event.kind) && noticed.takes(event.device)) {
      if (event.kind == Kind::alloc) living.allocate(event, number);
      if (event.kind == Kind::free_requested && !living.free(event.address))
        ++noticed.unknown_frees;
    }
    if (stops && number == options.event) break;
    if (options.progress && noticed.events % kEventsBetweenProgress == 0) options.progress(trace);
  }
  check(options, noticed);
  const bool at_peak = options.at == TopOptions::At::peak;
  top.tensors = at_peak ? living.at_peak() : living.now();
  top.event = at_peak ? living.peak_event() : noticed.events - (noticed.events > 0 ? 1 : 0);
  std::erase_if(top.tensors, [](const Tensor& tensor) { return tensor.bytes <= Bytes{0}; });
  for (const Tensor& tensor : top.tensors) top.live += tensor.bytes;
  std::sort(top.tensors.begin(), top.tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(b.bytes, a.event) < std::pair(a.bytes, b.event);
  });
  top.names = trace.names();
  return top;
}

std::vector<Share> shares(const Top& top, Grouping grouping, int depth) {
  std::unordered_map<std::string, Share> by_name;
  for (const Tensor& tensor : top.tensors) {
    Share& share = by_name[name_of(top, tensor, grouping, depth)];
    share.bytes += tensor.bytes;
    ++share.tensors;
  }
  std::vector<Share> sorted;
  for (auto& [name, share] : by_name) {
    share.name = name;
    sorted.push_back(share);
  }
  std::sort(sorted.begin(), sorted.end(), [](const Share& a, const Share& b) {
    return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
  });
  return sorted;
}

}  // namespace headroom::trace
