#include "run.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "headroom/memory/history.h"
#include "headroom/sim/simulate.h"
#include "headroom/trace/recorder.h"

namespace headroom::coverage {
namespace {

std::string shape_of(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor.dtype().name() << " " << tensor.sizes() << ", strides " << tensor.strides() << ", "
       << tensor.storage().nbytes() << " bytes";
  return text.str();
}

void see(const std::string& name, const Tensor& tensor, bool values, std::vector<Seen>& seen) {
  if (!tensor.defined()) {
    seen.push_back({name, "none", {}});
  } else if (tensor.is_sparse()) {
    see(name + ", indices", tensor._indices(), values, seen);
    see(name + ", values", tensor._values(), values, seen);
  } else {
    seen.push_back({name, shape_of(tensor), values ? tensor.detach().cpu() : Tensor()});
  }
}

std::vector<Seen> everything(const Outputs& outputs, const Trial& trial, bool values) {
  std::vector<Seen> seen;
  std::size_t number = 0;
  for (const Tensor& output : outputs.tensors())
    see("result " + std::to_string(number++), output, values, seen);
  for (const auto& [name, tensor] : trial.kept()) see(name, tensor, values, seen);
  return seen;
}

Outputs run(const Case& one, Trial& trial) {
  torch::manual_seed(5);
  Outputs outputs = one.program(trial);
  trial.backward(outputs);
  return outputs;
}

std::vector<Happened> read(const trace::Recorder& recorder) {
  std::vector<Happened> events;
  for (std::uint64_t i = 0; i < recorder.recorded(); ++i) {
    const trace::Event& event = recorder.event(i);
    events.push_back({event.kind, event.bytes, event.stream,
                      std::string(recorder.names().text(event.operation))});
  }
  return events;
}

bool same_bits(const Tensor& one, const Tensor& other) {
  if (one.sizes() != other.sizes() || one.dtype() != other.dtype()) return false;
  const Tensor a = one.resolve_conj().resolve_neg().contiguous();
  const Tensor b = other.resolve_conj().resolve_neg().contiguous();
  return a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::string difference(const Tensor& one, const Tensor& other) {
  std::ostringstream text;
  text << shape_of(one) << " and " << shape_of(other);
  if (one.sizes() == other.sizes() && !one.is_complex() && !other.is_complex()) {
    const Tensor apart = (one.to(at::kDouble) - other.to(at::kDouble)).abs();
    text << "; " << (apart != 0).sum().item<std::int64_t>() << " of " << one.numel()
         << " differ, at most by " << apart.max().item<double>();
  }
  return text.str();
}

// `difference` says of two tensors how they differ; "": they do not.
template <typename Difference>
testing::AssertionResult compared(const Outcome& one, const Outcome& other,
                                  const Difference& difference) {
  if (one.tensors.size() != other.tensors.size())
    return testing::AssertionFailure()
           << one.tensors.size() << " and " << other.tensors.size() << " tensors";
  std::string all;
  for (std::size_t i = 0; i < one.tensors.size(); ++i) {
    const std::string text = difference(one.tensors[i], other.tensors[i]);
    if (!text.empty()) all += "\n  " + text;
  }
  return all.empty() ? testing::AssertionSuccess() : testing::AssertionFailure() << all;
}

std::string text(const Happened& event) {
  return std::string(trace::to_string(event.kind)) + " " + std::to_string(event.bytes.count) +
         " on stream " + std::to_string(event.stream) + " in " +
         (event.operation.empty() ? "no operator" : event.operation);
}

std::string around(const std::vector<Happened>& events, std::size_t at) {
  std::string all;
  for (std::size_t i = at < 3 ? 0 : at - 3; i < std::min(events.size(), at + 3); ++i)
    all += (i == at ? "\n  > " : "\n    ") + std::to_string(i) + ": " + text(events[i]);
  return all;
}

}  // namespace

Outcome run_on_cpu(const Case& one, const Setting& setting) {
  Trial trial(setting);
  const Outputs outputs = run(one, trial);
  return {everything(outputs, trial, true), {}, 0};
}

Outcome run_simulated(const Case& one, const Setting& setting, sim::Mode mode) {
  const sim::Simulation box = sim::simulate("1x24GiB", {.mode = mode});
  Setting here = setting;
  here.device = box.device(0);
  Trial trial(here);
  trace::Recorder recorder;
  Outputs outputs;
  {
    const memory::History history = memory::record_history(here.device, recorder);
    outputs = run(one, trial);
  }
  return {everything(outputs, trial, mode == sim::Mode::compute), read(recorder),
          box.card(0).values_read_as_zero()};
}

testing::AssertionResult same_shapes(const Outcome& one, const Outcome& other) {
  return compared(one, other, [](const Seen& a, const Seen& b) {
    const bool same = a.name == b.name && a.shape == b.shape;
    return same ? "" : a.name + ": " + a.shape + "\n  " + b.name + ": " + b.shape;
  });
}

testing::AssertionResult same_events(const Outcome& one, const Outcome& other) {
  const auto [a, b] =
      std::mismatch(one.events.begin(), one.events.end(), other.events.begin(), other.events.end());
  if (a == one.events.end() && b == other.events.end()) return testing::AssertionSuccess();
  const auto at = static_cast<std::size_t>(a - one.events.begin());
  return testing::AssertionFailure() << "the events part at " << at << around(one.events, at)
                                     << "\n  against" << around(other.events, at);
}

testing::AssertionResult same_values(const Outcome& one, const Outcome& other) {
  return compared(one, other, [](const Seen& a, const Seen& b) -> std::string {
    if (!a.values.defined() && !b.values.defined()) return "";
    if (!b.values.defined()) return a.name + ": there and not there";
    if (!a.values.defined()) return a.name + ": not there and there";
    return same_bits(a.values, b.values) ? "" : a.name + ": " + difference(a.values, b.values);
  });
}

}  // namespace headroom::coverage
