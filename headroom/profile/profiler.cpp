#include "headroom/profile/profiler.h"

#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/profile/detail/sources.h"
#include "headroom/sim/simulate.h"

namespace headroom::profile {
namespace {

void check_no_profiler_runs() {
  if (torch::profiler::impl::profilerEnabled())
    throw UsageError(expectation("profile", "a thread without a profiler",
                                 "one with a profiler, of Headroom or of PyTorch",
                                 "ending that one first: profilers do not nest"));
}

std::unique_ptr<ProfileSource> start_source(const NamedTensors& tensors) {
  check_no_profiler_runs();
  return sim::card_count() > 0 ? detail::start_on_cards(tensors) : detail::start_kineto();
}

}  // namespace

Profiler::Profiler(const NamedTensors& tensors) : source_(start_source(tensors)) {}

Profiler::~Profiler() = default;

void Profiler::know(const NamedTensors& tensors) {
  if (source_ != nullptr) source_->know(tensors);
}

void Profiler::begin_step() {
  if (source_ != nullptr) source_->begin_step();
}

Profile Profiler::end() {
  if (source_ == nullptr)
    throw UsageError(expectation("profile", "one end() of a Profiler", "a second one",
                                 "keeping the first one's result"));
  if (std::this_thread::get_id() != thread_)
    throw UsageError(
        expectation("profile", "end() on the thread that made the Profiler", "another thread"));
  Profile profile = source_->end();
  source_.reset();
  return profile;
}

ModuleRange::ModuleRange(const std::string& module)
    : name_(std::string(kModuleRange) + module), range_(at::RecordScope::USER_SCOPE) {
  if (range_.isActive()) range_.before(std::string_view(name_));
}

bool is_left_out(std::string_view name) {
  static constexpr std::string_view kNames[] = {"profiler::_record_function_enter",
                                                "profiler::_record_function_enter_new",
                                                "profiler::_record_function_exit",
                                                "aten::is_leaf",
                                                "aten::output_nr",
                                                "aten::_version"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace headroom::profile
