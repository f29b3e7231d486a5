// The memory that a training may use of its cards beside other jobs. Its lease follows the plan,
// and a limit in the allocator keeps the run inside the lease: beyond it a request fails as on a
// full card.
//
// Threads: one at a time.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/base/time.h"
#include "headroom/supervise/allowance.h"
#include "headroom/train/evaluation.h"
#include "headroom/train/step_options.h"

namespace headroom::cli {

class TrainingShare {
 public:
  // From the request of `headroom train`. On cards that only this process uses nothing is limited.
  explicit TrainingShare(const Json& request);

  // Makes steps and evaluations ask for the memory that they use: plans fit into this share, the
  // lease follows the plan, and grows where a request was refused. `devices`: where the run is.
  void guide(train::StepOptions& step, train::EvaluationOptions& evaluation,
             std::function<std::vector<c10::Device>()> devices);

  // Sets the allocator's limit to the memory of the device that is leased already.
  void begin_on(c10::Device device);
  // Most bytes that tensors on the device may reserve, also by a larger lease. std::nullopt if
  // there is no limit.
  [[nodiscard]] std::optional<Bytes> most(c10::Device device);
  // Makes the lease as large as a step needs. A smaller one follows at once when the
  // plan has changed, else when it was enough for some steps: batches differ. False if it is not
  // available.
  [[nodiscard]] bool reserve(c10::Device device, Bytes needed);
  // A request of this many bytes was refused: if the lease was too small for it, the next try has a
  // larger one. `stays`: it is needed again, by each evaluation.
  void grow(c10::Device device, Bytes asked, bool stays);

  // The memory that tensors could reserve on the device if no other job were on it, or used the
  // same lease. std::nullopt if there is no limit, so that nothing would change.
  [[nodiscard]] std::optional<Bytes> most_when_alone(c10::Device device);

  // One sentence, once, when the lease was ended from outside.
  [[nodiscard]] std::optional<std::string> news();

 private:
  struct OnCard {
    Bytes granted;  // by the lease, for tensors
    Bytes beside;   // held of the card beside tensors: a CUDA context
    Bytes most;     // for tensors, by the last look
    Clock::time_point looked;
    Bytes least;                      // that the lease keeps
    std::optional<Bytes> limit = {};  // that the user set
    Bytes lately = {};                // the most that a step needed since `lower` was 0
    int lower = 0;                    // steps, one after another, that needed less than granted
    bool follows_at_once = true;      // the plan has changed
  };
  [[nodiscard]] OnCard* known(c10::Device device);
  void look(c10::Device device, OnCard& card);
  [[nodiscard]] bool change(c10::Device device, OnCard& card, Bytes bytes);
  void limit(c10::Device device, const OnCard& card);
  void leave_others(c10::Device device);
  void hear(const train::Event& event, bool stays);
  [[nodiscard]] std::optional<Bytes> assumed(c10::Device device) const;

  std::optional<supervise::Allowance> allowance_;
  std::function<std::vector<c10::Device>()> devices_;
  std::vector<Bytes> assumed_;    // of each device, in a dry run
  std::vector<gpu::Uuid> cards_;  // in the order of the devices
  std::map<int, OnCard> known_;   // by the device's index
};

}  // namespace headroom::cli
