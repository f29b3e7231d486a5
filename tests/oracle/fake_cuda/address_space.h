// Hands out ranges of numbers by one of the policies. It ignores alignment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "fake_cuda.h"

namespace fake_cuda {

class AddressSpace {
 public:
  AddressSpace(std::uint64_t begin, std::uint64_t end) : begin_(begin), end_(end) { reset(); }

  void reset();
  // Ends the process when the numbers are used up.
  Piece take(std::uint64_t size, Addresses policy);
  // The piece that begins there, no longer taken; nothing if none does.
  std::optional<Piece> give_back(std::uint64_t begin);
  [[nodiscard]] std::optional<Piece> at(std::uint64_t address) const;

 private:
  [[nodiscard]] std::uint64_t lowest_gap(std::uint64_t size) const;

  std::uint64_t begin_, end_;
  std::uint64_t above_ = 0, below_ = 0;  // ascending from, descending from
  std::map<std::uint64_t, Piece> taken_;
};

}  // namespace fake_cuda
