// Reports an out-of-memory inside the process that had it: the request, the holders of the card,
// the tensors that are alive, the plans that would have fitted, and what to do, all with bytes.
//
//   } catch (...) {                               // judge() is in headroom/libtorch/failure.h
//     const auto judgement = libtorch::judge(std::current_exception());
//     if (oom::is_out_of_memory(judgement))
//       say(to_string(train::oom_report({.device = device,
//                                        .failure = train::failure_from(judgement, device),
//                                        .module = net.get()})));
//     throw;
//   }
//
// Make it where the failure is caught: then it shows the tensors that stay between attempts, and
// the activations that the failed attempt has given back are one sum, `released`. Figures from the
// failure's text are rounded to a hundredth of their unit, and sums with them are, too.
//
// It asks the card for no memory. Threads: call it while nothing else allocates on the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/gpu/holders.h"
#include "headroom/oom/judgement.h"
#include "headroom/optim/optimizer.h"
#include "headroom/train/ladder.h"
#include "headroom/train/plan.h"
#include "headroom/train/prices.h"
#include "headroom/train/step_options.h"

namespace torch::nn {
class Module;
}

namespace headroom::train {

class Step;

// The words with which advice names a change: the fields of the options, unless the reader sets it
// in another way.
struct AdviceWords {
  std::string min_micro_batch = "min_micro_batch=", max_retries = "max_retries=";  // and a number
  bool are_keys = false;  // techniques by the keys of `headroom train`
  std::string autocast = "bfloat16 for matrix products (autocast)";
  // In place of the variable of the environment.
  std::optional<std::string> allocator = {};
  // Whether the reader wrote the loop, and can change what it holds and how it accumulates.
  bool is_own_loop = true;
};

// The facts for a report. All but the device and the failure may be left out.
struct OomFacts {
  c10::Device device;
  Failure failure;  // `work` without rows: not known
  const torch::nn::Module* module = nullptr;
  const optim::Optimizer* optimizer = nullptr;
  std::vector<at::Tensor> states = {};  // of another optimizer: libtorch::states_of(adam)
  const Prices* prices = nullptr;
  LadderOptions limits = {};  // that the failed run had
  bool has_autocast = false;
  bool in_a_step = true;  // false: while the model was made, where no batch is to blame
  // The holders of this card, by gpu::explain_holders(). They may include this process.
  std::vector<gpu::HolderReport> holders = {};
  AdviceWords words = {};
};

// The facts of a step that threw, with the options that it was made with.
[[nodiscard]] OomFacts facts_of(Step& step, const Failure& failure,
                                const StepOptions& options = {});
// A failure of a program without plans.
[[nodiscard]] Failure failure_from(const oom::Judgement& judgement, c10::Device device);

struct OomReport {
  enum class Kind { parameters, gradients, optimizer_states, buffers, other };
  static constexpr int kKinds = 5;
  // A named tensor, or all other allocations of one operator in one module.
  struct Live {
    Kind kind = Kind::other;
    std::string name;  // "exp_avg of head.weight"; "h.0.mlp, aten::mm"; "" if not recorded
    Bytes bytes;       // of its blocks, with the allocator's rounding
    std::int64_t count = 1;
  };
  struct Advice {
    std::string text;  // begins with what to do
    Bytes bytes;       // that it frees or saves
  };

  c10::Device device{c10::DeviceType::CPU};
  Failure failure;
  // The card at the failure. `neighbours`: other processes and the driver, as they are now.
  std::optional<Bytes> total, ours, neighbours;
  std::optional<Bytes> limit;  // that is set for this process; std::nullopt if there is none
  std::vector<gpu::HolderReport> holders;  // but for this process, the largest first

  // The allocations alive now. `released`: how much more this process had at the failure.
  std::array<Bytes, kKinds> sums{};
  std::vector<Live> largest;  // at most ten
  std::optional<Bytes> released;

  // `offered`: the memory that this process can have on the card now. `needed`: that of the failed
  // plan. `would_fit`: for each set of techniques that was priced, the largest micro-batch that
  // needs less and fits, the fewest techniques first; those that leave the ladder's room, or all if
  // none does. `least`: the priced plan that needs the least.
  std::optional<Bytes> offered, needed;
  std::vector<PricedPlan> would_fit;
  std::optional<PricedPlan> least;

  // The largest effect first; only advice that gives a twentieth of the missing memory or more.
  std::vector<Advice> advice;
};

[[nodiscard]] const char* to_string(OomReport::Kind kind);

[[nodiscard]] OomReport oom_report(const OomFacts& facts);

// Usually 20 to 40 lines of at most 100 columns, each with a newline.
[[nodiscard]] std::string to_string(const OomReport& report);
// Keys of sizes end in _bytes; unknown values are null.
[[nodiscard]] Json to_json(const OomReport& report);

}  // namespace headroom::train
