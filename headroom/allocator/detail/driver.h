// The driver's side of a card: how much memory is left, and which addresses it gives. Segments and
// the address ranges of expandable segments use separate address space; all ranges lie above all
// segments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "headroom/allocator/card_options.h"

namespace headroom::allocator::detail {

class Driver {
 public:
  Driver(Bytes capacity, AddressPolicy policy) : capacity_(capacity.count), policy_(policy) {}

  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] std::int64_t free() const {
    const std::int64_t left = capacity_ - used_ - used_by_others_;
    return left < 0 ? 0 : left;
  }
  void set_used_by_others(std::int64_t bytes) { used_by_others_ = bytes; }

  // Takes memory without an address, for pages mapped into a range. False: not enough is left.
  [[nodiscard]] bool take_memory(std::int64_t bytes);
  void give_memory(std::int64_t bytes) { used_ -= bytes; }

  // Takes memory with an address; std::nullopt if not enough is left.
  [[nodiscard]] std::optional<std::uint64_t> take_segment(std::int64_t bytes);
  void give_segment(std::uint64_t address, std::int64_t bytes);

  // Reserves addresses without memory.
  [[nodiscard]] std::uint64_t take_range(std::int64_t bytes);

 private:
  std::uint64_t address_for(std::int64_t bytes);

  std::int64_t capacity_;
  std::int64_t used_ = 0;
  std::int64_t used_by_others_ = 0;
  AddressPolicy policy_;
  std::uint64_t next_up_ = std::uint64_t{0x7f} << 40;
  std::uint64_t next_down_ = std::uint64_t{1} << 50;
  std::uint64_t next_range_ = std::uint64_t{1} << 50;
  std::map<std::uint64_t, std::int64_t> gaps_;  // for AddressPolicy::lowest, by address
};

}  // namespace headroom::allocator::detail
