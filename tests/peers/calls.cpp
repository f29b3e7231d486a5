#include "tests/peers/calls.h"

#include <ATen/SequenceNumber.h>
#include <torch/torch.h>

#include <algorithm>

#include "headroom/sim/card.h"
#include "headroom/sim/tensor.h"
#include "tests/sim/difference_rows.h"

namespace headroom::nets {
namespace {

constexpr std::string_view kNamespace = "aten::";

std::string without_namespace(std::string_view name) {
  return std::string(name.starts_with(kNamespace) ? name.substr(kNamespace.size()) : name);
}

// The row of difference_rows() for these arguments.
std::optional<std::int64_t> difference_of(const sim::OperatorCall& call) {
  const auto row = sim::testing::difference_rows().find(without_namespace(call.name));
  if (row == sim::testing::difference_rows().end()) return {};
  return row->second.bytes(torch::jit::Stack(call.arguments, call.arguments + call.argument_count));
}

const Replaced* find_replaced(const at::RecordFunction& record) {
  const std::optional<c10::OperatorName> name = record.operator_name();
  if (!name) return nullptr;
  const std::string whole = without_namespace(c10::toString(*name));
  for (const Replaced& row : replaced())
    if (row.function == whole) return &row;
  return nullptr;
}

// LibTorch's callbacks are plain functions.
Calls* watching = nullptr;

struct Noted : at::ObserverContext {};

}  // namespace

Calls::Calls(std::int64_t alive) : alive_before_(alive) {
  TORCH_CHECK(watching == nullptr, "calls are watched already");
  watching = this;
  functions_callback_ = at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& record) -> std::unique_ptr<at::ObserverContext> {
            const std::size_t before = watching->functions_.size();
            watching->begin_function(record);
            if (watching->functions_.size() == before) return nullptr;
            return std::make_unique<Noted>();
          },
          [](const at::RecordFunction& record, at::ObserverContext* noted) {
            if (noted != nullptr) watching->end_function(record);
          })
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  nodes_callback_ = at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& record) -> std::unique_ptr<at::ObserverContext> {
            watching->begin_node(record);
            return nullptr;
          },
          [](const at::RecordFunction& record, at::ObserverContext*) {
            watching->end_node(record);
          })
          .scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

void Calls::stop() {
  if (watching != this) return;
  at::removeCallback(functions_callback_);
  at::removeCallback(nodes_callback_);
  watching = nullptr;
}

// ---- Functions and their nodes ----

std::vector<std::size_t> Calls::blocks_of(const c10::IValue& value) const {
  std::vector<std::size_t> blocks;
  const auto note = [&](const at::Tensor& tensor) {
    const std::optional<std::uint64_t> address = sim::address_of(tensor);
    const auto found = address ? block_at_.find(*address) : block_at_.end();
    if (found != block_at_.end()) blocks.push_back(found->second);
  };
  if (value.isTensor()) note(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) note(tensor);
  return blocks;
}

void Calls::begin_function(const at::RecordFunction& record) {
  if (open_function_ != kNever) return;
  const Replaced* const row = find_replaced(record);
  if (row == nullptr) return;
  const std::optional<OnCuda> on_cuda = row->on_cuda(record.inputs());
  if (!on_cuda) return;
  Function function{.name = std::string(row->function), .on_cuda = *on_cuda};
  for (const std::size_t i : on_cuda->saved_arguments)
    for (const std::size_t block : blocks_of(record.inputs()[i]))
      function.saved_arguments.push_back(block);
  function.begin = events_.size();
  function.thread = at::RecordFunction::currentThreadId();
  function.first_node = static_cast<std::int64_t>(at::sequence_number::peek());
  open_function_ = functions_.size();
  add(Event::Kind::function, open_function_);
  functions_.push_back(std::move(function));
}

void Calls::end_function(const at::RecordFunction& record) {
  Function& function = functions_[open_function_];
  for (const c10::IValue& output : record.outputs())
    for (const std::size_t block : blocks_of(output)) function.results.push_back(block);
  function.last_node = static_cast<std::int64_t>(at::sequence_number::peek()) - 1;
  function.end = events_.size();
  add(Event::Kind::function_end, open_function_);
  open_function_ = kNever;
}

std::size_t Calls::function_of_node(const at::RecordFunction& record) const {
  const auto found =
      std::find_if(functions_.rbegin(), functions_.rend(), [&](const Function& function) {
        return function.thread == record.forwardThreadId() &&
               function.first_node <= record.seqNr() && record.seqNr() <= function.last_node;
      });
  return found == functions_.rend() ? kNever
                                    : static_cast<std::size_t>(functions_.rend() - found) - 1;
}

void Calls::begin_node(const at::RecordFunction& record) {
  const std::size_t of = function_of_node(record);
  if (of == kNever || functions_[of].backward_begin != kNever) return;
  functions_[of].backward_begin = events_.size();
  add(Event::Kind::backward, of);
}

void Calls::end_node(const at::RecordFunction& record) {
  const std::size_t of = function_of_node(record);
  if (of == kNever) return;
  functions_[of].backward_end = events_.size();
  add(Event::Kind::backward_end, of);
}

// ---- Operators and memory ----

void Calls::on_operator(const sim::OperatorCall& call) {
  if (!trace::here.operation.empty()) return;
  add(Event::Kind::call, calls_.size());
  calls_.push_back({.name = std::string(call.name), .difference = difference_of(call)});
}

void Calls::on_event(const allocator::AllocatorEvent& allocator_event) {
  if (allocator_event.kind == allocator::AllocatorEvent::Kind::alloc)
    make(allocator_event.address, allocator_event.size.count);
  else if (allocator_event.kind == allocator::AllocatorEvent::Kind::free_requested)
    free(allocator_event.address);
}

void Calls::make(std::uint64_t address, std::int64_t bytes) {
  const bool in_operator = !calls_.empty() && !trace::here.operation.empty();
  block_at_[address] = blocks_.size();
  add(Event::Kind::make, blocks_.size());
  blocks_.push_back({.bytes = bytes,
                     .call = in_operator ? calls_.size() - 1 : kNever,
                     .made = events_.size() - 1});
}

void Calls::free(std::uint64_t address) {
  const auto found = block_at_.find(address);
  if (found == block_at_.end()) return;  // older than the watching: its bytes go below
  Block& block = blocks_[found->second];
  block.freed = events_.size();
  block.temporary = block.call == calls_.size() - 1 && !trace::here.operation.empty();
  add(Event::Kind::free, found->second);
  block_at_.erase(found);
}

}  // namespace headroom::nets
