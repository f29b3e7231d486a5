// The same computation on the CPU, on a computing card and on a shape-only card, to compare what
// comes out: numbers to the bit, and what it asked of the allocator.
#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/sim/simulate.h"
#include "headroom/trace/recorder.h"

namespace headroom::sim {

// On a device, with whatever it makes from it: what is compared.
using Computation = std::function<std::vector<torch::Tensor>(torch::Device)>;
// The events of the card's memory, in order.
using Requests = std::vector<std::pair<std::string, std::int64_t>>;

inline Requests requests_of(const trace::Recorder& recorder) {
  Requests requests;
  for (std::uint64_t i = recorder.dropped(); i < recorder.recorded(); ++i) {
    const trace::Event& event = recorder.event(i);
    requests.emplace_back(std::string(to_string(event.kind)), event.bytes.count);
  }
  return requests;
}

class Recording {
 public:
  Recording(Card& card, trace::Recorder& recorder) : card_(card) { card_.record(&recorder); }
  ~Recording() { card_.record(nullptr); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Card& card_;
};

struct Side {
  std::vector<torch::Tensor> results;  // on the host
  std::vector<std::vector<std::int64_t>> strides;
  Requests requests;
};

// The seed is set on the device before. All is on one stream, so the checker of streams must be
// silent.
inline Side run_on_card(const Computation& computation, SimulationOptions options,
                        const std::string& spec = "1x8GiB") {
  options.check_streams = true;
  const Simulation box = simulate(spec, options);
  trace::Recorder recorder;
  Side side;
  {
    auto generator = box.card(0).generator();
    generator.set_current_seed(7);
    std::vector<torch::Tensor> results;
    {
      const Recording recording(box.card(0), recorder);
      results = computation(box.device(0));
    }
    for (const torch::Tensor& result : results) {
      side.results.push_back(result.defined() ? result.detach().cpu() : result);
      side.strides.push_back(result.defined() ? result.strides().vec()
                                              : std::vector<std::int64_t>());
    }
  }
  side.requests = requests_of(recorder);
  return side;
}

inline std::vector<torch::Tensor> run_on_cpu(const Computation& computation) {
  torch::manual_seed(7);
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(7);
  return computation(torch::kCPU);
}

inline void expect_same_bits(const torch::Tensor& one, const torch::Tensor& other,
                             std::size_t which) {
  ASSERT_EQ(one.defined(), other.defined()) << "result " << which;
  if (!one.defined()) return;
  ASSERT_EQ(one.sizes(), other.sizes()) << "result " << which;
  ASSERT_EQ(one.scalar_type(), other.scalar_type()) << "result " << which;
  const auto a = one.detach(), b = other.detach();
  const bool same_but_nan = torch::equal(torch::isnan(a), torch::isnan(b)) &&
                            torch::equal(a.nan_to_num(), b.nan_to_num());
  EXPECT_TRUE(torch::equal(a, b) || same_but_nan)
      << "result " << which << " differs by up to "
      << (a - b).abs().max().to(torch::kDouble).item<double>();
}

// Computing gives the CPU's numbers; shape-only, the same shapes and the same memory events.
inline void expect_as_on_cpu(const Computation& computation, SimulationOptions options = {},
                             const std::string& spec = "1x8GiB") {
  const auto expected = run_on_cpu(computation);
  options.mode = Mode::compute;
  const Side computed = run_on_card(computation, options, spec);
  ASSERT_EQ(computed.results.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    expect_same_bits(computed.results[i], expected[i], i);
  options.mode = Mode::shape_only;
  const Side shapes = run_on_card(computation, options, spec);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(shapes.strides[i], computed.strides[i]) << "result " << i;
  EXPECT_EQ(shapes.requests, computed.requests);
}

}  // namespace headroom::sim
