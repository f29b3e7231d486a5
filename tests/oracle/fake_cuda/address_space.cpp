#include "address_space.h"

#include <iterator>

#include "state.h"

namespace fake_cuda {

void AddressSpace::reset() {
  above_ = begin_;
  below_ = end_;
  taken_.clear();
}

std::uint64_t AddressSpace::lowest_gap(std::uint64_t size) const {
  std::uint64_t gap = begin_;
  for (const auto& [begin, piece] : taken_) {
    if (begin - gap >= size) break;
    gap = begin + piece.size;
  }
  return gap;
}

Piece AddressSpace::take(std::uint64_t size, Addresses policy) {
  std::uint64_t begin = above_;
  if (policy == Addresses::lowest) begin = lowest_gap(size);
  if (size > (policy == Addresses::descending ? below_ - begin_ : end_ - begin))
    fail("no addresses are left: this machine lives too long, or its capacity is too large");
  if (policy == Addresses::descending) begin = below_ -= size;
  if (policy == Addresses::ascending) above_ += size;
  const Piece piece{begin, size, next_birth()};
  taken_.emplace(begin, piece);
  return piece;
}

std::optional<Piece> AddressSpace::give_back(std::uint64_t begin) {
  const auto found = taken_.find(begin);
  if (found == taken_.end()) return {};
  const Piece piece = found->second;
  taken_.erase(found);
  return piece;
}

std::optional<Piece> AddressSpace::at(std::uint64_t address) const {
  const auto after = taken_.upper_bound(address);
  if (after == taken_.begin()) return {};
  const Piece& piece = std::prev(after)->second;
  return address - piece.begin < piece.size ? std::optional(piece) : std::nullopt;
}

}  // namespace fake_cuda
