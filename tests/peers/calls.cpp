#include "tests/peers/calls.h"

#include <torch/torch.h>

#include <algorithm>

#include "headroom/sim/rules/table.h"

namespace headroom::nets {
namespace {

constexpr std::size_t kNever = ~std::size_t{0};
constexpr std::string_view kNamespace = "aten::";

// What the table says of these arguments.
std::optional<std::int64_t> difference_of(const sim::OperatorCall& call) {
  const std::string name(call.name.starts_with(kNamespace) ? call.name.substr(kNamespace.size())
                                                           : call.name);
  const sim::rules::Entry* const entry = sim::rules::table().find(name);
  if (entry == nullptr || entry->difference.words.empty()) return {};
  const std::size_t dot = name.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name.substr(0, dot)).c_str(),
      dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
  torch::jit::Stack stack(call.arguments, call.arguments + call.argument_count);
  entry->difference.bytes.function.callBoxed(
      handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &stack);
  return stack.back().toInt();
}

}  // namespace

std::int64_t Call::kept_bytes(std::size_t moment) const {
  std::int64_t sum = 0;
  for (const Block& block : blocks)
    if (!block.temporary && block.freed_during >= moment) sum += block.bytes;
  return sum;
}

void Calls::on_operator(const sim::OperatorCall& call) {
  if (!sim::current_operator().empty()) return;
  calls_.push_back({.name = std::string(call.name),
                    .difference = difference_of(call),
                    .before = alive_,
                    .most = alive_});
}

void Calls::on_happening(const allocator::Happening& happening) {
  if (happening.kind == allocator::Happening::Kind::alloc)
    allocate(happening.address, happening.size.count);
  else if (happening.kind == allocator::Happening::Kind::free_requested)
    free(happening.address);
}

void Calls::allocate(std::uint64_t address, std::int64_t bytes) {
  alive_ += bytes;
  Place place{.bytes = bytes};
  if (!calls_.empty()) {
    calls_.back().most = std::max(calls_.back().most, alive_);
    if (!sim::current_operator().empty()) {
      place = {calls_.size() - 1, calls_.back().blocks.size(), bytes, true};
      calls_.back().blocks.push_back({.bytes = bytes, .freed_during = kNever});
    }
  }
  places_[address] = place;
}

void Calls::free(std::uint64_t address) {
  const auto found = places_.find(address);
  if (found == places_.end()) return;  // older than the watching: its bytes go below
  const Place place = found->second;
  places_.erase(found);
  alive_ -= place.bytes;
  if (!place.of_a_call) return;
  Call::Block& block = calls_[place.call].blocks[place.block];
  block.freed_during = calls_.size() - 1;
  block.temporary = block.freed_during == place.call && !sim::current_operator().empty();
}

}  // namespace headroom::nets
