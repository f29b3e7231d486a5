#include "headroom/sim/detail/unknown.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/sim/detail/block.h"
#include "headroom/sim/detail/fill.h"
#include "headroom/sim/detail/known.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::IValue;

constexpr std::size_t kFew = 64;

Tensor over(const Tensor& tensor, void* data) {
  return rewrapped(tensor,
                   {c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                    c10::DataPtr(data, c10::Device(c10::kCPU)), nullptr, false},
                   c10::DispatchKey::CPU);
}

at::TensorOptions on_host(const Tensor& tensor) {
  return at::TensorOptions(tensor.scalar_type()).device(c10::kCPU);
}

Tensor zeros(const Tensor& tensor, at::IntArrayRef sizes) {
  return at::zeros({}, on_host(tensor)).expand(sizes);
}

// Of a large mask.
bool reads_alike(const Tensor& tensor) {
  const Block* const block = block_of(tensor.storage());
  return block != nullptr && block->reads_alike && tensor.itemsize() == 1;
}

Tensor element_of(const Tensor& tensor) {
  return at::from_blob(block_of(tensor.storage())->reads.get(), {}, on_host(tensor));
}

// All of what a small storage reads as, to be written to.
Tensor room_for_reads(const Tensor& tensor) {
  Block* const block = block_of(tensor.storage());
  if (!block->reads) {
    block->reads = c10::GetCPUAllocator()->allocate(block->bytes);
    std::memset(block->reads.get(), 0, block->bytes);
  }
  return over(tensor, block->reads.get());
}

// Where all elements are alike, as the kernel sees one of them. Nothing: they may differ.
std::optional<Tensor> one_of(const Tensor& tensor) {
  const bool one = tensor.numel() == 1;
  if (!on_card(tensor)) return one ? std::optional(tensor) : std::nullopt;
  if (tensor.numel() == 0 || block_of(tensor.storage()) == nullptr) return {};
  if (one) return as_read(tensor);
  const at::DimVector sizes(static_cast<std::size_t>(tensor.dim()), 1);
  if (reads_alike(tensor)) return element_of(tensor).expand(sizes);
  const bool has_values = is_known(tensor) || block_of(tensor.storage())->reads;
  return has_values ? std::nullopt : std::optional(zeros(tensor, sizes));
}

// For all of a large mask.
bool keeps_one(const Tensor& tensor) {
  return on_card(tensor) && tensor.scalar_type() == at::kBool && covers_its_storage(tensor);
}

void keep_one(const Tensor& element, const Tensor& to) {
  Block* const block = block_of(to.storage());
  block->reads = c10::GetCPUAllocator()->allocate(1);
  block->reads_alike = true;
  element_of(to).copy_(element.reshape({}));
}

// An operator whose results are being read.
class Reading {
 public:
  Reading(Call& call, std::vector<IValue> arguments)
      : call_(call), arguments_(std::move(arguments)) {
    for (const std::size_t i : call_.op.written)
      libtorch::for_each_tensor(arguments_[i], [&](const Tensor& x) { written_.push_back(x); });
    call_.for_each_tensor([&](const Tensor& x) { results_.push_back(x); });
  }

  // False where zeros tell nothing: then what was written reads as zeros.
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
  // Of floating numbers few are, where they are chosen and not computed: scores of beams, and -1e9
  // where none has ended.
  [[nodiscard]] bool can_be_kept() const {
    const bool chosen = call_.op.name.starts_with("aten::where");
    return all_results([&](const Tensor& x) {
      return keeps_reads(x) ||
             (chosen && on_card(x) && !is_known(x) && !x.is_complex() &&
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
    for (const auto& [to, one] : written) keep(one, to);
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

  // The kernel's results into the planned ones.
  void settle() const {
    std::size_t next = 0;
    call_.for_each_tensor([&](const Tensor& computed) {
      const Tensor& planned = results_.at(next++);
      if (planned.defined() && computed.defined() && !is_written(planned)) keep(computed, planned);
    });
  }

  static void keep(const Tensor& from, const Tensor& to) {
    TORCH_CHECK(from.scalar_type() == to.scalar_type());
    if (to.numel() == 0) return;
    if (!keeps_reads(to) && keeps_one(to)) return keep_one(from, to);
    room_for_reads(to).copy_(from.expand(to.sizes()));
    make_finite(to);
  }

  static void make_finite(const Tensor& tensor) {
    if (!tensor.is_floating_point() || tensor.numel() != 1) return;
    Tensor read = as_read(tensor);
    if (!std::isfinite(read.item<double>())) read.zero_();
  }

  template <typename Run>
  bool try_to(const Run& run) {
    std::vector<IValue> planned = call_.values();
    bool told = true;
    try {
      run();
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error&) {  // Python's own exceptions, Ctrl-C among them, go on
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

Tensor as_read(const Tensor& tensor) {
  if (!on_card(tensor)) return tensor;
  if (tensor.numel() == 0) return zeros(tensor, tensor.sizes());
  if (is_known(tensor)) return over(tensor, tensor.storage().mutable_data());
  if (reads_alike(tensor)) return element_of(tensor).expand(tensor.sizes());
  const Block* const block = block_of(tensor.storage());
  if (block == nullptr || !block->reads || block->reads_alike) return zeros(tensor, tensor.sizes());
  return over(tensor, block->reads.get());
}

bool reads_equal(const Tensor& one, const Tensor& other) {
  const std::optional<Tensor> a = one_of(one), b = one_of(other);
  return a && b ? at::equal(*a, *b) : at::equal(as_read(one), as_read(other));
}

bool keeps_reads(const Tensor& tensor) {
  if (!on_card(tensor) || !tensor.has_storage() || tensor.is_complex()) return false;
  if (tensor.numel() == 0) return true;
  if (is_known(tensor) || block_of(tensor.storage()) == nullptr) return false;
  const bool is_whole = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return tensor.storage().nbytes() == tensor.itemsize() || (is_whole && is_small(tensor));
}

void forget_reads(const Tensor& tensor) {
  if (!on_card(tensor) || !tensor.has_storage()) return;
  if (Block* const block = block_of(tensor.storage())) {
    block->reads = {};
    block->reads_alike = false;
  }
}

void copy_reads(const Tensor& from, const Tensor& to) {
  if (keeps_reads(to) && is_small(from))
    room_for_reads(to).copy_(as_read(from));
  else if (const auto one = keeps_one(to) ? one_of(from) : std::nullopt)
    keep_one(*one, to);
  else
    forget_reads(to);
}

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
