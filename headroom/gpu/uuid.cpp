#include "headroom/gpu/uuid.h"

#include "headroom/base/text.h"

namespace headroom::gpu {
namespace {

std::optional<std::array<std::uint8_t, 16>> parse_hex(std::string_view text) {
  // 8-4-4-4-12 digits.
  if (text.size() != 36) return {};
  std::array<std::uint8_t, 16> bytes{};
  std::size_t digits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return {};
      continue;
    }
    const std::size_t value = std::string_view("0123456789abcdef").find(text[i]);
    if (value == std::string_view::npos) return {};
    auto& byte = bytes[digits / 2];
    byte = static_cast<std::uint8_t>(byte * 16 + value);
    ++digits;
  }
  return bytes;
}

std::string hex(const std::array<std::uint8_t, 16>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

std::optional<int> parse_instance(std::string_view text) {
  constexpr long long kMostInstances = 1 << 20;  // a larger number is not an instance
  const auto number = to_integer(text);
  if (!number || *number < 0 || *number > kMostInstances) return {};
  return static_cast<int>(*number);
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::optional<Uuid> Uuid::parse(std::string_view text) {
  const std::string lowered = lower(text);
  std::string_view rest = lowered;
  Uuid uuid;
  if (take(rest, "mig-gpu-")) {
    const auto parts = split(rest, '/');
    if (parts.size() != 3) return {};
    const auto instance = parse_instance(parts[1]), slice = parse_instance(parts[2]);
    if (!instance || !slice) return {};
    uuid.kind = Kind::mig;
    uuid.instance = {*instance, *slice};
    rest = parts[0];
  } else if (take(rest, "mig-")) {
    uuid.kind = Kind::mig;
  } else if (!take(rest, "gpu-")) {
    return {};
  }
  const auto bytes = parse_hex(rest);
  if (!bytes) return {};
  uuid.bytes = *bytes;
  return uuid;
}

Uuid Uuid::from_driver(const std::string& text) {
  if (auto uuid = parse(text)) return *std::move(uuid);
  Uuid uuid;
  if (lower(text).starts_with("mig-")) uuid.kind = Kind::mig;
  uuid.raw = text;
  return uuid;
}

std::string to_string(const Uuid& uuid) {
  if (!uuid.raw.empty()) return uuid.raw;
  if (uuid.kind == Uuid::Kind::gpu) return "GPU-" + hex(uuid.bytes);
  if (!uuid.instance) return "MIG-" + hex(uuid.bytes);
  return "MIG-GPU-" + hex(uuid.bytes) + "/" + std::to_string((*uuid.instance)[0]) + "/" +
         std::to_string((*uuid.instance)[1]);
}

std::string short_text(const Uuid& uuid) {
  std::string text = to_string(uuid);
  if (uuid.instance || !uuid.raw.empty()) return text;
  return text.substr(0, text.find('-', 4));
}

bool begins_with(const Uuid& uuid, std::string_view text) {
  return lower(to_string(uuid)).starts_with(lower(text));
}

}  // namespace headroom::gpu
