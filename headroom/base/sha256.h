// SHA-256 (FIPS 180-4): shows whether a file is the one that was written, and whether two runs
// ended with the same weights.
//
//   Sha256 hash;
//   hash.add(bytes);
//   hash.hex();   // "e3b0c442..."
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

class Sha256 {
 public:
  void add(std::string_view bytes);
  // The hash of all bytes so far, as 64 digits.
  [[nodiscard]] std::string hex() const;

 private:
  void take(const char* block);
  void finish();

  std::array<std::uint32_t, 8> state_{0x6a09e667U, 0xbb67ae85U, 0x3c6ef372U, 0xa54ff53aU,
                                      0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U};
  std::string rest_;  // less than a block
  std::uint64_t bytes_ = 0;
};

// Throws InputError if the file cannot be read.
[[nodiscard]] std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace headroom
