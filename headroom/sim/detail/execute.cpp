#include "headroom/sim/detail/execute.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/libtorch/tensors_in.h"
#include "headroom/sim/detail/alias.h"
#include "headroom/sim/detail/block.h"
#include "headroom/sim/detail/cards.h"
#include "headroom/sim/detail/derived.h"
#include "headroom/sim/detail/executing.h"
#include "headroom/sim/detail/generator.h"
#include "headroom/sim/detail/in_float.h"
#include "headroom/sim/detail/operators.h"
#include "headroom/sim/detail/streams.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::DeviceType;
using c10::IValue;
using libtorch::for_each_tensor;
using libtorch::replace_tensors;
using torch::jit::Stack;

// One call: the operator, the card it runs on, and its arguments on the stack.
class Call {
 public:
  Call(const c10::OperatorHandle& handle, const Operator& op, Stack& stack)
      : handle_(handle), op_(op), stack_(stack), first_(stack.size() - op.arguments) {
    card_ = &card_of_arguments();
  }

  void run() {
    check_generator();
    const bool computes = mode_now(*card_) == Mode::compute;
    std::vector<IValue> arguments;
    if (computes)
      arguments.assign(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    const std::optional<trace::OperationScope> scope = operation_scope();
    if (Watcher* const watcher = card_->watcher())
      watcher->on_operator({op_.name, stack_.data() + first_, op_.arguments});
    if (computes && op_.writes_out) note_outs();
    if (plan()) {
      // After the results, as CUDA does.
      if (op_.uses_cublas()) card_->use_cublas(allocator_stream(current_stream(card_->index())));
      if (computes && !op_.is_view) fill(std::move(arguments));
    } else if (computes) {
      put_back(std::move(arguments));
      run_unplanned();
    } else {
      check_slow_way();
      run_unplanned();
    }
  }

 private:
  // ---- Which card ----

  Card& card_of_arguments() {
    int index = -1;
    for (std::size_t i = first_; i < stack_.size(); ++i)
      for_each_tensor(stack_[i], [&](const Tensor& tensor) {
        if (!on_card(tensor)) return;
        if (index >= 0 && tensor.device().index() != index && !op_.takes_several_cards)
          several_cards(index, tensor.device().index());
        check_lives(tensor);
        if (index < 0) index = tensor.device().index();
      });
    for (std::size_t i = first_; index < 0 && i < stack_.size(); ++i)
      if (stack_[i].isDevice() && stack_[i].toDevice().type() == DeviceType::PrivateUse1)
        index = stack_[i].toDevice().index();
    return card_at(index < 0 ? current_card() : index);
  }

  // In PyTorch's words.
  [[noreturn]] void several_cards(int one, int other) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two ",
                "devices, sim:", one, " and sim:", other, "! (when running ", op_.name, ")");
  }

  // As CUDA does, and in its words.
  void check_generator() const {
    if (op_.generator_argument < 0) return;
    const IValue& given = stack_[first_ + static_cast<std::size_t>(op_.generator_argument)];
    if (!given.isGenerator()) return;
    const DeviceType type = given.toGenerator().device().type();
    TORCH_CHECK(type == DeviceType::PrivateUse1,
                "Expected a 'sim' device type for generator but found '",
                c10::DeviceTypeName(type, true), "' (when running ", op_.name, ")");
  }

  [[nodiscard]] std::optional<trace::OperationScope> operation_scope() const {
    trace::Recorder* const recorder = card_->recorder();
    if (recorder == nullptr) return {};
    return std::optional<trace::OperationScope>(std::in_place, *recorder, recorder->name(op_.name));
  }

  // ---- Shapes and memory ----

  // The results, on the card but without data, take the arguments' place. False: nobody knows the
  // shapes without running the operator.
  bool plan() {
    const ExecutingScope scope(card_, true, op_.name);
    if (op_.entry != nullptr && !op_.entry->refused.empty())
      TORCH_CHECK_NOT_IMPLEMENTED(false, op_.name, " on a simulated card: ", op_.entry->refused);
    try {
      return plan_shapes();
    } catch (const rules::NeedsValues& need) {
      needs_values_ = need.advice;
    } catch (const c10::NotImplementedError& error) {
      // A Meta kernel that is composed of others, one of which is missing.
      if (op_.has_rule()) throw;
      needs_values_ = error.what_without_backtrace();
    }
    return false;
  }

  bool plan_shapes() {
    if (op_.has_rule()) {
      op_.entry->rule.function.callBoxed(
          handle_, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &stack_);
      return true;
    }
    if (op_.entry != nullptr && !op_.entry->needs_values.empty())
      throw rules::NeedsValues{op_.entry->needs_values};
    if (!op_.on_meta) return plan_from_schema(handle_, stack_);
    Aliases aliases(DeviceType::Meta);
    replace_arguments(aliases, DeviceType::Meta);
    handle_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack_);
    map_results(aliases);
    return true;
  }

  void replace_arguments(Aliases& aliases, DeviceType as) {
    for (std::size_t i = first_; i < stack_.size(); ++i) {
      IValue& value = stack_[i];
      replace_tensors(value, [&](const Tensor& tensor) { return aliases.of(tensor); });
      if (value.isDevice() && value.toDevice().type() == DeviceType::PrivateUse1)
        value = c10::Device(as);
      else if (value.isGenerator() &&
               value.toGenerator().device().type() == DeviceType::PrivateUse1)
        value = as == DeviceType::CPU ? IValue(on_cpu(value.toGenerator())) : IValue();
    }
  }

  // From Meta results to the card's.
  void map_results(const Aliases& aliases) {
    std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> made;
    for (std::size_t i = first_; i < stack_.size(); ++i)
      replace_tensors(stack_[i], [&](const Tensor& result) -> Tensor {
        if (!result.defined() || !result.is_meta()) return result;
        if (const Tensor* argument = aliases.argument_behind(result))
          return written(*argument, result);
        if (const c10::Storage* storage = aliases.storage_behind(result))
          return rewrapped(result, *storage, c10::DispatchKey::PrivateUse1);
        return fresh(result, made);
      });
  }

  // An out= argument may have been given another shape, and more memory.
  Tensor written(const Tensor& argument, const Tensor& result) {
    if (!on_card(argument)) return argument;
    if (result.storage().nbytes() > argument.storage().nbytes()) {
      at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(argument.storage(),
                                                               result.storage().nbytes());
      grown_.push_back(argument.storage());
    }
    if (argument.sizes() != result.sizes() || argument.strides() != result.strides())
      argument.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
    return argument;
  }

  void note_outs() {
    for (std::size_t i = first_; i < stack_.size(); ++i)
      for_each_tensor(stack_[i], [&](const Tensor& tensor) {
        if (on_card(tensor)) outs_.emplace_back(tensor.storage(), tensor.storage().nbytes());
      });
  }

  Tensor fresh(const Tensor& result,
               std::vector<std::pair<const c10::StorageImpl*, c10::Storage>>& made) const {
    const c10::StorageImpl* const meta = result.storage().unsafeGetStorageImpl();
    const auto same = std::find_if(made.begin(), made.end(),
                                   [&](const auto& pair) { return pair.first == meta; });
    if (same != made.end()) return rewrapped(result, same->second, c10::DispatchKey::PrivateUse1);
    made.emplace_back(meta, storage_on_card(result.storage().nbytes()));
    return rewrapped(result, made.back().second, c10::DispatchKey::PrivateUse1);
  }

  [[nodiscard]] c10::Storage storage_on_card(std::size_t bytes) const {
    c10::DataPtr memory =
        bytes == 0 ? c10::DataPtr(nullptr, card_->device()) : allocate_block(*card_, bytes, false);
    return {c10::Storage::use_byte_size_t(), bytes, std::move(memory), device_allocator(), true};
  }

  // ---- Data ----

  // The stack has the planned results; the CPU's kernel runs on the arguments and fills them.
  void fill(std::vector<IValue> arguments) {
    Stack planned(stack_.begin() + static_cast<std::ptrdiff_t>(first_), stack_.end());
    stack_.resize(first_);
    for (IValue& argument : arguments) stack_.push_back(std::move(argument));
    for (const auto& [storage, bytes_before] : outs_)
      if (storage.nbytes() > bytes_before) grown_.push_back(storage);
    for (const c10::Storage& storage : grown_)
      if (storage.data() == nullptr) give_data(storage);
    Aliases aliases(DeviceType::CPU);
    run_on_cpu(aliases);

    for (std::size_t i = 0; i < planned.size(); ++i) {
      std::vector<Tensor> computed;
      for_each_tensor(stack_[first_ + i],
                      [&](const Tensor& tensor) { computed.push_back(tensor); });
      std::size_t next = 0;
      for_each_tensor(planned[i], [&](const Tensor& tensor) {
        check(next < computed.size(), "as many results");
        settle(tensor, computed[next++], aliases);
      });
      if (planned[i].isNone() || !(planned[i].isTensor() || planned[i].isTensorList()))
        planned[i] = std::move(stack_[first_ + i]);  // numbers are the kernel's
    }
    stack_.resize(first_);
    for (IValue& result : planned) stack_.push_back(std::move(result));
  }

  void run_on_cpu(Aliases& aliases) {
    draw_from_card();
    replace_arguments(aliases, DeviceType::CPU);
    const c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    if (op_.has_fill()) {
      const ExecutingScope scope(card_, false, op_.name);
      op_.entry->fill.function.callBoxed(handle_, cpu, &stack_);
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(
          op_.on_cpu,
          expectation("sim", "an operator that LibTorch has a kernel for the CPU of",
                      op_.name + ", which has only one for CUDA", "the operators it is made of"));
      InFloat in_float;
      if (op_.runs_in_float()) in_float.widen(stack_, first_);
      handle_.redispatchBoxed(cpu, &stack_);
      in_float.narrow(stack_, first_);
    }
  }

  // Random numbers come from the card's own state.
  void draw_from_card() {
    if (op_.generator_argument < 0) return;
    IValue& generator = stack_[first_ + static_cast<std::size_t>(op_.generator_argument)];
    if (generator.isNone()) generator = card_->generator();
  }

  // What the kernel computed becomes the data of the result that was planned.
  void settle(const Tensor& planned, const Tensor& computed, const Aliases& aliases) const {
    if (!planned.defined() || planned.numel() == 0 || !on_card(planned)) return;
    if (planned.is_sparse()) return settle_sparse(planned, computed, aliases);
    if (computed.defined() && (aliases.argument_behind(computed) != nullptr ||
                               aliases.storage_behind(computed) != nullptr))
      return;  // it was written where it is
    const c10::Storage& storage = planned.storage();
    if (!computed.defined()) {
      if (storage.data() == nullptr) give_zeros(storage);
      return;
    }
    check(computed.sizes() == planned.sizes() && computed.dtype() == planned.dtype(),
          "a result of the shape that was planned", planned, computed);
    if (storage.data() == nullptr && can_adopt(planned, computed)) {
      c10::StorageImpl* const from = computed.storage().unsafeGetStorageImpl();
      c10::DataPtr nothing{nullptr, c10::Device(DeviceType::CPU)};
      give_data(storage, from->set_data_ptr(std::move(nothing)));
      return;
    }
    if (storage.data() == nullptr) give_data(storage);
    rewrapped(planned, host_view(storage), c10::DispatchKey::CPU).copy_(computed);
  }

  void settle_sparse(const Tensor& planned, const Tensor& computed, const Aliases& aliases) const {
    check(computed.is_sparse(), "a sparse result");
    settle(planned._indices(), computed._indices(), aliases);
    settle(planned._values(), computed._values(), aliases);
  }

  [[nodiscard]] static bool can_adopt(const Tensor& planned, const Tensor& computed) {
    return computed.storage_offset() == 0 && planned.storage_offset() == 0 &&
           computed.strides() == planned.strides() && computed.storage().use_count() == 1 &&
           computed.storage().nbytes() >= planned.storage().nbytes() &&
           computed.device().is_cpu() && computed.is_conj() == planned.is_conj() &&
           computed.is_neg() == planned.is_neg();
  }

  static c10::Storage host_view(const c10::Storage& storage) {
    return {c10::Storage::use_byte_size_t(), storage.nbytes(),
            c10::DataPtr(const_cast<void*>(storage.data()), c10::Device(DeviceType::CPU)), nullptr,
            false};
  }

  static void give_zeros(const c10::Storage& storage) {
    give_data(storage);
    std::memset(const_cast<void*>(storage.data()), 0, storage.nbytes());
  }

  // ---- Without a plan ----

  // Without data the CPU's kernel may be asked for shapes only where they do not depend on values,
  // and where the user agrees to wait for it.
  void check_slow_way() const {
    if (op_.depends_on_values || !needs_values_.empty())
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, expectation("sim", "values, on which the shape of the result depends",
                             op_.name + " on a shape-only card",
                             (needs_values_.empty() ? "an operator with a result of fixed shape"
                                                    : needs_values_) +
                                 ", or this part in compute mode (Card::set_mode)"));
    if (!card_->slow_way())
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, expectation("sim", "an operator with a rule for its shapes",
                             op_.name + " on a shape-only card",
                             "the slow way (Card::set_slow_way), which asks the CPU's kernel over "
                             "zeros, or compute mode (Card::set_mode)"));
  }

  void put_back(std::vector<IValue> arguments) {
    stack_.resize(first_);
    for (IValue& argument : arguments) stack_.push_back(std::move(argument));
  }

  // The operator itself says what comes out: of the data, or of zeros in its place.
  void run_unplanned() {
    const bool computes = mode_now(*card_) == Mode::compute;
    const ExecutingScope scope(card_, false, op_.name);
    Aliases aliases(DeviceType::CPU,
                    computes ? Aliases::Missing::fails : Aliases::Missing::is_zero);
    run_on_cpu(aliases);
    std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> made;
    for (std::size_t i = first_; i < stack_.size(); ++i)
      replace_tensors(stack_[i], [&](const Tensor& result) -> Tensor {
        if (!result.defined()) return result;
        if (const Tensor* argument = aliases.argument_behind(result))
          return written_by_cpu(*argument, result);
        if (const c10::Storage* storage = aliases.storage_behind(result))
          return rewrapped(result, *storage, c10::DispatchKey::PrivateUse1);
        const std::size_t before = made.size();
        Tensor on_this_card = fresh(result, made);
        if (computes && made.size() > before && result.storage().nbytes() > 0)
          give_data(on_this_card.storage(),
                    result.storage().unsafeGetStorageImpl()->set_data_ptr(
                        c10::DataPtr(nullptr, c10::Device(DeviceType::CPU))));
        return on_this_card;
      });
  }

  Tensor written_by_cpu(const Tensor& argument, const Tensor& result) {
    const bool grew = result.storage().nbytes() > argument.storage().nbytes();
    const Tensor same = written(argument, result);
    if (grew && on_card(argument) && mode_now(*card_) == Mode::compute)
      std::memcpy(const_cast<void*>(argument.storage().data()), result.storage().data(),
                  result.storage().nbytes());
    return same;
  }

  void check(bool holds, const char* expected) const {
    if (!holds) throw InternalError(expectation("sim", expected, op_.name, ""));
  }
  void check(bool holds, const char* expected, const Tensor& planned,
             const Tensor& computed) const {
    if (holds) return;
    const auto say = [](const Tensor& tensor) {
      std::ostringstream text;
      text << tensor.sizes() << " of " << tensor.dtype().name();
      return text.str();
    };
    throw InternalError(
        expectation("sim", expected,
                    op_.name + ": planned " + say(planned) + ", computed " + say(computed), ""));
  }

  const c10::OperatorHandle& handle_;
  const Operator& op_;
  Stack& stack_;
  const std::size_t first_;  // of the arguments, later of the results, on the stack
  Card* card_ = nullptr;
  std::vector<c10::Storage> grown_;                         // of out= arguments
  std::vector<std::pair<c10::Storage, std::size_t>> outs_;  // and their bytes before
  std::string needs_values_;                                // why there is no plan, or what to do
};

}  // namespace

void execute(const c10::OperatorHandle& handle, Stack* stack) {
  Call(handle, operator_of(handle), *stack).run();
}

}  // namespace headroom::sim::detail
