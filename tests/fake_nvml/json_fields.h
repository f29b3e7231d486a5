// Small checked readers for the values of a state file.
//
// Every mistake (an unknown key, a wrong type, a number out of range) throws BadState with the
// place where it stands. A misspelt fault that is silently ignored would leave a test that cannot
// fail.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "state.h"

namespace fake_nvml {

/// One JSON object together with its place ("cards[0].mig"), for messages.
class Fields {
 public:
  /// Throws unless `object` is an object that has no other keys than `known`.
  Fields(const nlohmann::json& object, std::string where, std::initializer_list<const char*> known);

  /// The value of a key, or null when it is missing. JSON's own null is returned as a value.
  [[nodiscard]] const nlohmann::json* find(const char* key) const;

  [[nodiscard]] std::string text(const char* key, const std::string& fallback) const;
  [[nodiscard]] bool flag(const char* key, bool fallback) const;
  [[nodiscard]] std::uint64_t number(const char* key, std::uint64_t fallback,
                                     std::uint64_t most) const;
  [[nodiscard]] unsigned number32(const char* key, unsigned fallback) const;

  /// As number32; JSON's null means "not available".
  [[nodiscard]] std::optional<unsigned> measurement(const char* key,
                                                    std::optional<unsigned> fallback) const;

  /// A plain number of bytes or text such as "24GiB", "1.5GB"; null means "not available".
  [[nodiscard]] std::optional<std::uint64_t> bytes(const char* key,
                                                   std::optional<std::uint64_t> fallback) const;

  /// The elements of an array; none when the key is missing.
  [[nodiscard]] const nlohmann::json& list(const char* key) const;

  /// "cards[0].mig.devices[2]", for the readers of elements.
  [[nodiscard]] std::string place(const char* key, std::size_t index) const;
  [[nodiscard]] std::string place(const char* key) const;

  [[noreturn]] void refuse(const char* key, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace fake_nvml
