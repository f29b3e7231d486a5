// The free blocks of one pool and stream, ordered by size and then address: best fit, with the
// lowest address among equals.
//
// Blocks are kept in bins of similar sizes, sixteen to a power of two, each a short sorted list,
// with one bit a bin that says whether it holds anything. Training repeats its sizes, so a search
// mostly ends at the first entry of the first bin it looks into, where a tree would walk.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::allocator::detail {

class FreeBlocks {
 public:
  struct Entry {
    std::int64_t size;
    std::uint64_t address;
    std::uint32_t block;
  };
  // Valid until the next insert or erase.
  struct Position {
    std::uint32_t bin;
    std::uint32_t index;
    explicit operator bool() const { return bin != kNoBin; }
  };

  void insert(const Entry& entry) {
    const std::uint32_t bin = bin_of(entry.size);
    if (bin >= bins_.size()) bins_.resize(bin + 1);
    std::vector<Entry>& entries = bins_[bin];
    entries.insert(std::upper_bound(entries.begin(), entries.end(), entry, before), entry);
    used_[bin / 64] |= bit(bin);
  }

  // The entry must be there.
  void erase(std::int64_t size, std::uint64_t address) {
    const std::uint32_t bin = bin_of(size);
    const std::vector<Entry>& entries = bins_[bin];
    const auto found =
        std::lower_bound(entries.begin(), entries.end(), Entry{size, address, 0}, before);
    erase({bin, static_cast<std::uint32_t>(found - entries.begin())});
  }
  void erase(Position position) {
    std::vector<Entry>& entries = bins_[position.bin];
    entries.erase(entries.begin() + position.index);
    if (entries.empty()) used_[position.bin / 64] &= ~bit(position.bin);
  }

  [[nodiscard]] const Entry& at(Position position) const {
    return bins_[position.bin][position.index];
  }

  // The smallest entry of at least this size; false when there is none.
  [[nodiscard]] Position first_at_least(std::int64_t size) const {
    const std::uint32_t bin = bin_of(size);
    if (bin >= bins_.size()) return none();
    const std::vector<Entry>& entries = bins_[bin];
    for (std::uint32_t i = 0; i < entries.size(); ++i)
      if (entries[i].size >= size) return {bin, i};
    return first_of_bin(used_from(bin + 1));
  }
  [[nodiscard]] Position first() const { return first_of_bin(used_from(0)); }
  [[nodiscard]] Position last() const { return last_of_bin(used_up_to(kBins)); }
  [[nodiscard]] Position next(Position position) const {
    if (position.index + 1 < bins_[position.bin].size()) return {position.bin, position.index + 1};
    return first_of_bin(used_from(position.bin + 1));
  }
  [[nodiscard]] Position previous(Position position) const {
    if (position.index > 0) return {position.bin, position.index - 1};
    return last_of_bin(used_up_to(position.bin));
  }

 private:
  static constexpr std::uint32_t kNoBin = ~std::uint32_t{0};
  static constexpr std::uint32_t kBins = 896;  // up to the largest size there can be

  static Position none() { return {kNoBin, 0}; }
  static std::uint64_t bit(std::uint32_t bin) { return std::uint64_t{1} << (bin % 64); }
  static bool before(const Entry& a, const Entry& b) {
    return a.size != b.size ? a.size < b.size : a.address < b.address;
  }

  // Sizes below 16 KiB have a bin for each multiple of 512 bytes, larger ones share.
  static std::uint32_t bin_of(std::int64_t size) {
    const std::uint64_t units = static_cast<std::uint64_t>(size) / 512;
    if (units < 32) return static_cast<std::uint32_t>(units);
    const auto power = static_cast<std::uint32_t>(std::bit_width(units)) - 1;
    return (power - 3) * 16 + static_cast<std::uint32_t>((units >> (power - 4)) & 15);
  }

  // The first bin from this one on that holds something, kNoBin if none does.
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
  // The last bin before this one that holds something.
  [[nodiscard]] std::uint32_t used_up_to(std::uint32_t bin) const {
    while (bin-- > 0)
      if (used_[bin / 64] & bit(bin)) return bin;
    return kNoBin;
  }
  [[nodiscard]] Position first_of_bin(std::uint32_t bin) const { return {bin, 0}; }
  [[nodiscard]] Position last_of_bin(std::uint32_t bin) const {
    if (bin == kNoBin) return none();
    return {bin, static_cast<std::uint32_t>(bins_[bin].size()) - 1};
  }

  std::vector<std::vector<Entry>> bins_;
  std::array<std::uint64_t, kBins / 64> used_{};
};

}  // namespace headroom::allocator::detail
