// The free blocks of one pool and stream, ordered by size, then by `order`: best fit, with the
// lowest order among equals. (The block number breaks ties: a very long stream of requests can use
// up all addresses and wrap around.)
//
// Bins hold blocks of similar size, sixteen bins to a power of two. Each bin is a short sorted
// list, and one bit per bin says whether it is empty. Training repeats its sizes, so a search
// usually ends at the first entry of the first bin it reads, where a tree would walk.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace headroom::allocator::detail {

class FreeBlocks {
 public:
  struct Entry {
    std::int64_t size;
    std::uint64_t order;
    std::uint32_t block;
  };
  // Valid until the next insert or erase.
  struct Position {
    std::uint32_t bin, piece, index;
    explicit operator bool() const { return bin != kNoBin; }
  };

  void insert(const Entry& entry) {
    const std::uint32_t bin = bin_of(entry.size);
    if (bin >= bins_.size()) bins_.resize(bin + 1);
    Bin& pieces = bins_[bin];
    if (pieces.empty()) pieces.emplace_back();
    Piece* piece = &pieces[piece_for(pieces, entry)];
    if (piece->size() == kLongestPiece) piece = &halve(pieces, piece, entry);
    piece->insert(piece->begin() + place_of(entry, *piece), entry);
    used_[bin / 64] |= bit(bin);
  }

  // Requires that the entry is present.
  void erase(const Entry& entry) { erase(first_in_bin(bin_of(entry.size), entry)); }
  void erase(Position position) {
    Bin& pieces = bins_[position.bin];
    Piece& piece = pieces[position.piece];
    piece.erase(piece.begin() + position.index);
    if (!piece.empty()) return;
    if (pieces.size() > 1)
      pieces.erase(pieces.begin() + position.piece);
    else  // keep it, so that the next insert need not allocate
      used_[position.bin / 64] &= ~bit(position.bin);
  }

  [[nodiscard]] const Entry& at(Position position) const {
    return bins_[position.bin][position.piece][position.index];
  }

  // The smallest entry of at least this size; converts to false if there is none.
  [[nodiscard]] Position first_at_least(std::int64_t size) const {
    const std::uint32_t bin = bin_of(size);
    if (bin >= bins_.size()) return none();
    if (used_[bin / 64] & bit(bin))
      if (const Position found = first_in_bin(bin, Entry{size, 0, 0})) return found;
    return first_of_bin(used_from(bin + 1));
  }
  [[nodiscard]] Position first() const { return first_of_bin(used_from(0)); }
  [[nodiscard]] Position last() const { return last_of_bin(used_before(kBins)); }
  [[nodiscard]] Position next(Position position) const {
    const Bin& pieces = bins_[position.bin];
    if (position.index + 1 < pieces[position.piece].size())
      return {position.bin, position.piece, position.index + 1};
    if (position.piece + 1 < pieces.size()) return {position.bin, position.piece + 1, 0};
    return first_of_bin(used_from(position.bin + 1));
  }
  [[nodiscard]] Position previous(Position position) const {
    if (position.index > 0) return {position.bin, position.piece, position.index - 1};
    if (position.piece > 0) return last_of_piece(position.bin, position.piece - 1);
    return last_of_bin(used_before(position.bin));
  }

 private:
  using Piece = std::vector<Entry>;  // sorted; empty only as a bin's only piece
  using Bin = std::vector<Piece>;    // sorted

  static constexpr std::uint32_t kNoBin = ~std::uint32_t{0};
  static constexpr std::size_t kLongestPiece = 128;
  static constexpr std::uint32_t kBins = 896;  // enough for the largest possible size

  static Position none() { return {kNoBin, 0, 0}; }
  static std::uint64_t bit(std::uint32_t bin) { return std::uint64_t{1} << (bin % 64); }
  static bool before(const Entry& a, const Entry& b) {
    if (a.size != b.size) return a.size < b.size;
    return a.order != b.order ? a.order < b.order : a.block < b.block;
  }

  // Sizes below 16 KiB have a bin for each multiple of 512 bytes; larger sizes share bins.
  static std::uint32_t bin_of(std::int64_t size) {
    const std::uint64_t units = static_cast<std::uint64_t>(size) / 512;
    if (units < 32) return static_cast<std::uint32_t>(units);
    const auto power = static_cast<std::uint32_t>(std::bit_width(units)) - 1;
    return (power - 3) * 16 + static_cast<std::uint32_t>((units >> (power - 4)) & 15);
  }

  // The piece that contains the entry, or would contain it.
  static std::uint32_t piece_for(const Bin& pieces, const Entry& entry) {
    if (pieces.size() == 1) return 0;
    const auto found = std::lower_bound(
        pieces.begin(), pieces.end() - 1, entry,
        [](const Piece& piece, const Entry& wanted) { return before(piece.back(), wanted); });
    return static_cast<std::uint32_t>(found - pieces.begin());
  }
  // Cuts a piece in two; returns the half to which the entry belongs.
  static Piece& halve(Bin& pieces, Piece* piece, const Entry& entry) {
    const auto at = pieces.begin() + (piece - pieces.data());
    const auto middle = at->begin() + kLongestPiece / 2;
    Piece upper(middle, at->end());
    at->erase(middle, at->end());
    const auto half = pieces.insert(at + 1, std::move(upper));
    return before(entry, half->front()) ? *(half - 1) : *half;
  }

  // The number of entries in the piece that are before this one. Most pieces are so short that a
  // linear search is faster than a binary one.
  static std::uint32_t place_of(const Entry& entry, const Piece& piece) {
    constexpr std::size_t kShort = 12;
    auto at = piece.begin();
    if (piece.size() <= kShort)
      while (at != piece.end() && before(*at, entry)) ++at;
    else
      at = std::lower_bound(at, piece.end(), entry, before);
    return static_cast<std::uint32_t>(at - piece.begin());
  }

  // The first entry of this bin that is not before `entry`.
  [[nodiscard]] Position first_in_bin(std::uint32_t bin, const Entry& entry) const {
    const Bin& pieces = bins_[bin];
    const std::uint32_t number = piece_for(pieces, entry);
    const Piece& piece = pieces[number];
    const std::uint32_t index = place_of(entry, piece);
    return index == piece.size() ? none() : Position{bin, number, index};
  }

  // The first bin that is not empty, from `bin` on; kNoBin if there is none.
  [[nodiscard]] std::uint32_t used_from(std::uint32_t bin) const {
    if (bin >= kBins) return kNoBin;
    std::uint32_t word = bin / 64;
    std::uint64_t bits = used_[word] & (~std::uint64_t{0} << (bin % 64));
    while (bits == 0)
      if (++word == used_.size())
        return kNoBin;
      else
        bits = used_[word];
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  // The last bin before `bin` that is not empty.
  [[nodiscard]] std::uint32_t used_before(std::uint32_t bin) const {
    while (bin-- > 0)
      if (used_[bin / 64] & bit(bin)) return bin;
    return kNoBin;
  }
  static Position first_of_bin(std::uint32_t bin) { return {bin, 0, 0}; }
  [[nodiscard]] Position last_of_bin(std::uint32_t bin) const {
    if (bin == kNoBin) return none();
    return last_of_piece(bin, static_cast<std::uint32_t>(bins_[bin].size()) - 1);
  }
  [[nodiscard]] Position last_of_piece(std::uint32_t bin, std::uint32_t piece) const {
    return {bin, piece, static_cast<std::uint32_t>(bins_[bin][piece].size()) - 1};
  }

  std::vector<Bin> bins_;
  std::array<std::uint64_t, kBins / 64> used_{};
};

}  // namespace headroom::allocator::detail
