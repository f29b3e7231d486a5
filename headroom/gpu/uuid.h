// The identity of a card or of a MIG slice: 16 bytes, as CUDA and the driver compare them.
//
// NVML and CUDA_VISIBLE_DEVICES write it as text ("GPU-8932f937-d72c-..."), sometimes shortened.
// Any byte may be 0, so the bytes are never treated as a C string.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::gpu {

struct Uuid {
  enum class Kind { gpu, mig };

  Kind kind = Kind::gpu;
  std::array<std::uint8_t, 16> bytes{};
  // Drivers before R470 wrote a MIG slice as "MIG-GPU-<uuid of the card>/<instance>/<slice>".
  std::optional<std::array<int, 2>> instance;
  // The driver's name for the card if that is not a UUID; empty otherwise.
  std::string raw;

  auto operator<=>(const Uuid&) const = default;

  // Parses the whole text, in any case; std::nullopt if it is not a UUID.
  [[nodiscard]] static std::optional<Uuid> parse(std::string_view text);
  // The same for text from a driver: text that is not a UUID is kept as it is, and still identifies
  // the card.
  [[nodiscard]] static Uuid from_driver(const std::string& text);
};

// "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-...", as NVML prints it.
[[nodiscard]] std::string to_string(const Uuid& uuid);

// "GPU-8932f937": enough to tell the cards of one machine apart on a screen.
[[nodiscard]] std::string short_text(const Uuid& uuid);

// True if `text` ("GPU-8932", any case) is a prefix of this UUID; CUDA accepts such prefixes.
[[nodiscard]] bool begins_with(const Uuid& uuid, std::string_view text);

}  // namespace headroom::gpu
