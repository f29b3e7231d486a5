#include "headroom/sim/dispatch/read_results.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/known.h"
#include "headroom/sim/device/reads.h"
#include "headroom/sim/dispatch/fill.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::IValue;

constexpr std::size_t kFew = 64;

// Computes the values that one operator's results read as.
class Reading {
 public:
  Reading(Call& call, std::vector<IValue> arguments)
      : call_(call), arguments_(std::move(arguments)) {
    for (const std::size_t i : call_.op.written)
      libtorch::for_each_tensor(arguments_[i], [&](const Tensor& x) { written_.push_back(x); });
    call_.for_each_tensor([&](const Tensor& x) { results_.push_back(x); });
  }

  // False where zeros say nothing: the written arguments then read as zeros.
  bool run() {
    if (results_.empty() && written_.empty()) return false;
    return (can_be_alike() && try_to([&] { run_on_one(); })) ||
           (can_be_kept() && try_to([&] { run_on_all(); }));
  }
  void forget_written() const {
    for (const Tensor& tensor : written_) forget_reads(tensor);
  }

 private:
  [[nodiscard]] bool is_written(const Tensor& tensor) const {
    return std::any_of(written_.begin(), written_.end(),
                       [&](const Tensor& other) { return other.is_same(tensor); });
  }

  template <typename Fits>
  [[nodiscard]] bool all_results(Fits&& fits) const {
    const auto all = [&](const std::vector<Tensor>& tensors) {
      return std::all_of(tensors.begin(), tensors.end(),
                         [&](const Tensor& x) { return !x.defined() || fits(x); });
    };
    return all(results_) && all(written_);
  }
  // Few floating-point numbers are kept, too, where they are chosen and not computed: scores of
  // beams, and -1e9 where none has ended.
  [[nodiscard]] bool can_be_kept() const {
    return all_results([&](const Tensor& x) {
      return keeps_reads(x) ||
             (call_.op.chooses && on_card(x) && !is_known(x) && !x.is_complex() &&
              block_of(x.storage()) != nullptr && x.storage().nbytes() <= kFew * x.itemsize());
    });
  }

  [[nodiscard]] bool can_be_alike() {
    if (!call_.op.keeps_alike || !all_results([](const Tensor& x) {
          return x.numel() > 0 && (keeps_one(x) || (keeps_reads(x) && covers_its_storage(x)));
        }))
      return false;
    bool alike = true;
    for (const IValue& argument : arguments_)
      libtorch::for_each_tensor(argument, [&](const Tensor& x) {
        alike = alike && (!x.defined() || one_of(x).has_value());
      });
    return alike;
  }

  // One element in place of all.
  void run_on_one() {
    std::vector<std::pair<Tensor, Tensor>> written;
    run([&](const Tensor& x) {
      if (!x.defined()) return x;
      Tensor one = *one_of(x);
      if (is_written(x)) written.emplace_back(x, one = one.clone());
      return one;
    });
    for (const auto& [to, one] : written) keep_reads(one, to);
    settle();
  }

  void run_on_all() {
    run([&](const Tensor& x) {
      if (!on_card(x)) return x;
      return is_written(x) && x.numel() > 0 ? room_for_reads(x) : as_read(x);
    });
    for (const Tensor& tensor : written_) make_finite(tensor);
    settle();
  }

  template <typename StandIn>
  void run(StandIn&& stand_in) {
    call_.set_values(arguments_);
    call_.replace_tensors(stand_in);
    call_.replace_devices(c10::kCPU);
    run_kernel(call_);
  }

  // Moves the kernel's results into the planned ones.
  void settle() const {
    std::size_t next = 0;
    call_.for_each_tensor([&](const Tensor& computed) {
      const Tensor& planned = results_.at(next++);
      if (planned.defined() && computed.defined() && !is_written(planned))
        keep_reads(computed, planned);
    });
  }

  template <typename Run>
  bool try_to(const Run& run) {
    std::vector<IValue> planned = call_.values();
    bool told = true;
    try {
      run();
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error&) {  // Python's own exceptions, Ctrl-C among them, pass through
      told = false;
    } catch (const InternalError&) {
      told = false;
    }
    call_.set_values(std::move(planned));
    return told;
  }

  Call& call_;
  std::vector<IValue> arguments_;
  std::vector<Tensor> written_;
  std::vector<Tensor> results_;
};

}  // namespace

bool may_read(const Call& call) {
  const Operator& op = call.op;
  if (!op.can_know || op.generator_argument >= 0) return false;
  bool all_small = true;
  if (op.is_pointwise) {
    for (const std::size_t i : op.written)
      libtorch::for_each_tensor(call.stack[call.first + i], [&](const Tensor& tensor) {
        all_small = all_small && (tensor.scalar_type() == at::kBool || is_small(tensor));
      });
    return all_small;
  }
  for (std::size_t i = call.first; i < call.stack.size() && all_small; ++i)
    libtorch::for_each_tensor(call.stack[i], [&](const Tensor& tensor) {
      all_small =
          all_small &&
          (!on_card(tensor) || (tensor.has_storage() && (is_small(tensor) || reads_alike(tensor))));
    });
  return all_small;
}

void read_results(Call& call, std::vector<IValue> arguments) {
  Reading reading(call, std::move(arguments));
  if (!reading.run()) reading.forget_written();
}

}  // namespace headroom::sim::detail
