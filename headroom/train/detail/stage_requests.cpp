#include "headroom/train/detail/stage_requests.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/libtorch/operator_calls.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/train/detail/stand_ins.h"

namespace headroom::train::detail {

dryrun::Requests requests_alone(Transaction& rank, const gpu::SimulatedCard& card,
                                const Tensors& batch, const Plan& plan,
                                const std::optional<std::vector<Tensors>>& given,
                                const dryrun::CardOptions& options, bool with_marks) {
  const dryrun::MakeSubject make = [&](c10::Device device) {
    rank.start_anew_on(device, given);
    dryrun::Subject subject;
    subject.step = [&, device] {
      StandIns stand_ins(device);
      const libtorch::CallScope scope(stand_ins, libtorch::CallScope::Of::all);
      libtorch::RandomState random({});
      rank.attempt(batch, plan, random);
      rank.end_alone();
    };
    if (with_marks)
      subject.marks = [&](std::function<void()> mark) { rank.hear_passes(std::move(mark)); };
    return subject;
  };
  dryrun::Requests requests = dryrun::run_steps(card, make, 1, options).requests;
  rank.hear_passes({});
  return requests;
}

dryrun::Requests with_another_step(dryrun::Requests requests) {
  using Kind = allocator::Operation::Kind;
  const auto mark = std::find_if(requests.begin(), requests.end(), [](const auto& request) {
    return request.kind == Kind::reset_peaks;
  });
  const std::size_t first = static_cast<std::size_t>(mark - requests.begin()) + 1,
                    last = requests.size();
  std::uint32_t ids = 0;
  for (const auto& request : requests) ids = std::max(ids, request.id + 1);
  std::vector<bool> passing(ids);
  for (std::size_t i = first; i < last; ++i)
    if (requests[i].kind == Kind::free) passing[requests[i].id] = true;
  std::vector<std::optional<std::uint32_t>> again(ids);
  requests.reserve(2 * last);
  for (std::size_t i = first; i < last; ++i) {
    allocator::Operation request = requests[i];
    if (request.kind == Kind::allocate && passing[request.id]) again[request.id] = ids++;
    if (!again[request.id]) continue;
    request.id = *again[request.id];
    requests.push_back(request);
  }
  return requests;
}

}  // namespace headroom::train::detail
