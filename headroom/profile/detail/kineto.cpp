#include "headroom/profile/detail/sources.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "headroom/base/error.h"

namespace headroom::profile::detail {
namespace {

namespace kineto = torch::autograd::profiler;
using kineto::KinetoEvent;
using torch::profiler::impl::ActivityType;

constexpr std::string_view kMemory = "[memory]";
constexpr std::string_view kOutOfMemory = "[OutOfMemory]";
// Values of libkineto::ActivityType: a range of the program, and the same drawn beside the kernels.
constexpr int kRange = 1, kRangeOnDevice = 2;

// An operator or range; else a call of CUDA's runtime, which is numbered by other correlations.
bool is_numbered(const KinetoEvent& event) {
  return event.activityType() <= kRange && event.linkedCorrelationId() == 0;
}

bool is_cpu(c10::DeviceType type) {
  return type == c10::DeviceType::CPU || type == c10::DeviceType::MKLDNN ||
         type == c10::DeviceType::IDEEP;
}

std::string shapes_json_of(const KinetoEvent& event) {
  std::string text = "[";
  for (const std::vector<std::int64_t>& shape : event.shapes()) {
    if (text.size() > 1) text += ", ";
    text += '[';
    for (std::size_t i = 0; i < shape.size(); ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    text += ']';
  }
  return text + ']';
}

std::int64_t start_of(const KinetoEvent& event) {
  return static_cast<std::int64_t>(event.startNs());
}
std::int64_t end_of(const KinetoEvent& event) {
  return static_cast<std::int64_t>(event.endNs());
}

// Walks over the events by time, with the open calls of each thread.
class Reading {
 public:
  explicit Reading(const kineto::ProfilerResult& result) {
    for (const KinetoEvent& event : result.events()) take(event);
    std::stable_sort(timed_.begin(), timed_.end(), [](const KinetoEvent* a, const KinetoEvent* b) {
      return a->startNs() != b->startNs() ? a->startNs() < b->startNs() : a->endNs() > b->endNs();
    });
  }

  Profile profile() {
    for (const KinetoEvent* const event : timed_) {
      if (event->name() == kMemory)
        allocate(*event);
      else
        open(*event);
    }
    for (const KinetoEvent* const kernel : kernels_) add_time(*kernel);
    return std::move(profile_);
  }

 private:
  struct Open {
    std::int64_t end_ns = 0;
    std::int32_t call = -1;  // of a module's range: the call that it is in
    trace::Name module = 0;
  };

  // CUDA's runtime calls have a thread number of their own kind: they belong to the thread of the
  // operator that they are linked to.
  void take(const KinetoEvent& event) {
    const std::string name = event.name();
    if (!is_cpu(event.deviceType()) && name != kMemory) {
      if (event.activityType() != kRangeOnDevice) kernels_.push_back(&event);
      return;
    }
    if (name == kOutOfMemory || event.isHiddenEvent() || event.isPythonFunction() ||
        is_left_out(name))
      return;
    if (is_numbered(event)) threads_.try_emplace(event.correlationId(), event.startThreadId());
    timed_.push_back(&event);
  }

  [[nodiscard]] std::uint64_t thread_of(const KinetoEvent& event) const {
    const auto linked = threads_.find(event.linkedCorrelationId());
    return event.linkedCorrelationId() != 0 && linked != threads_.end() ? linked->second
                                                                        : event.startThreadId();
  }

  void open(const KinetoEvent& event) {
    std::vector<Open>& open = open_[thread_of(event)];
    // As PyTorch's table nests them.
    while (!open.empty() &&
           (start_of(event) >= open.back().end_ns || end_of(event) > open.back().end_ns))
      open.pop_back();
    const Open outer = open.empty() ? Open() : open.back();
    const std::string name = event.name();
    if (name.starts_with(kModuleRange)) {
      profile_.knows_modules = true;
      const auto module = profile_.names.number(name.substr(kModuleRange.size()));
      open.push_back({end_of(event), outer.call, module});
      return;
    }
    open.push_back({end_of(event), add(event, name, outer), 0});
    open.back().module = profile_.calls.back().module;
  }

  std::int32_t add(const KinetoEvent& event, const std::string& name, const Open& outer) {
    const bool is_range = event.scope() == static_cast<std::uint8_t>(at::RecordScope::USER_SCOPE);
    const auto number = static_cast<std::int32_t>(profile_.calls.size());
    // The profiler's own work within an operator ("Activity Buffer Request") has its number, too.
    if (is_numbered(event)) calls_.try_emplace(event.correlationId(), number);
    profile_.calls.push_back({.name = profile_.names.number(name),
                              .module = module_of(event, outer),
                              .shapes = is_range || !event.hasShapes()
                                            ? trace::Name{0}
                                            : profile_.names.number(shapes_json_of(event)),
                              .kind = is_range ? CallKind::range : CallKind::operation,
                              .parent = outer.call,
                              .thread = thread_of(event),
                              .start_ns = start_of(event),
                              .end_ns = end_of(event)});
    return number;
  }

  // A node of the backward pass has the number of the forward operator that made it.
  trace::Name module_of(const KinetoEvent& event, const Open& outer) {
    if (event.sequenceNr() < 0) return outer.module;
    if (event.fwdThreadId() == 0) {
      if (outer.module != 0) modules_[{event.startThreadId(), event.sequenceNr()}] = outer.module;
      return outer.module;
    }
    const auto forward = modules_.find({event.fwdThreadId(), event.sequenceNr()});
    return forward == modules_.end() ? outer.module : forward->second;
  }

  void allocate(const KinetoEvent& event) {
    Call& call = profile_.calls[static_cast<std::size_t>(call_at(event))];
    const Bytes bytes(event.nBytes());
    const bool on_cpu = is_cpu(event.deviceType());
    if (bytes.count > 0) (on_cpu ? call.cpu : call.device) += bytes;
    if (!on_cpu) {
      call.kept += bytes;
      profile_.has_device = true;
    }
    const std::string device =
        on_cpu ? "cpu"
               : c10::Device(event.deviceType(), static_cast<c10::DeviceIndex>(event.deviceIndex()))
                     .str();
    const trace::Name name = profile_.names.number(device);
    allocated_[name] += bytes;
    profile_.samples.push_back({start_of(event), name, allocated_[name]});
  }

  // The innermost call at this moment, or a new one outside all calls.
  std::int32_t call_at(const KinetoEvent& event) {
    std::vector<Open>& open = open_[event.startThreadId()];
    while (!open.empty() && start_of(event) > open.back().end_ns) open.pop_back();
    if (!open.empty() && open.back().call >= 0) return open.back().call;
    profile_.calls.push_back({.name = profile_.names.number(kMemory),
                              .module = open.empty() ? trace::Name{0} : open.back().module,
                              .kind = CallKind::allocation,
                              .thread = event.startThreadId(),
                              .start_ns = start_of(event),
                              .end_ns = start_of(event)});
    return static_cast<std::int32_t>(profile_.calls.size()) - 1;
  }

  void add_time(const KinetoEvent& kernel) {
    profile_.has_device = true;
    const auto call = calls_.find(kernel.linkedCorrelationId());
    if (call == calls_.end()) return;
    profile_.calls[static_cast<std::size_t>(call->second)].device_s +=
        static_cast<double>(kernel.durationNs()) / 1e9;
  }

  Profile profile_;
  std::vector<const KinetoEvent*> timed_, kernels_;
  std::unordered_map<std::uint64_t, std::uint64_t> threads_;               // by correlation
  std::unordered_map<std::uint64_t, std::int32_t> calls_;                  // by correlation
  std::unordered_map<std::uint64_t, std::vector<Open>> open_;              // by thread
  std::map<std::pair<std::uint64_t, std::int64_t>, trace::Name> modules_;  // by thread and number
  std::unordered_map<trace::Name, Bytes> allocated_;                       // by device
};

class KinetoSource final : public ProfileSource {
 public:
  KinetoSource() {
    std::set<ActivityType> activities{ActivityType::CPU};
    if (torch::cuda::is_available()) activities.insert(ActivityType::CUDA);
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                       /*report_input_shapes=*/true,
                                                       /*profile_memory=*/true);
    kineto::prepareProfiler(config, activities);
    kineto::enableProfiler(config, activities);
  }
  KinetoSource(const KinetoSource&) = delete;
  KinetoSource& operator=(const KinetoSource&) = delete;
  // On another thread the profiler is not the current one; it then ends with its thread.
  ~KinetoSource() override {
    try {
      if (runs_ && torch::profiler::impl::profilerEnabled()) (void)kineto::disableProfiler();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the profile is discarded anyway
    }
  }

  Profile end() override {
    runs_ = false;
    if (!torch::profiler::impl::profilerEnabled())
      throw UsageError(expectation("profile", "a profile that no other profiler ends",
                                   "one that has ended: PyTorch's profiler ran inside it",
                                   "one of them at a time"));
    return read_profile(*kineto::disableProfiler());
  }

 private:
  bool runs_ = true;
};

}  // namespace

std::unique_ptr<ProfileSource> start_kineto() {
  return std::make_unique<KinetoSource>();
}

}  // namespace headroom::profile::detail

namespace headroom::profile {

Profile read_profile(const torch::autograd::profiler::ProfilerResult& result) {
  return without_repeated_calls(detail::Reading(result).profile());
}

}  // namespace headroom::profile
