// The one way in which the readers say that a file is wrong, and limits they share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::trace::detail {

// What a trace may hold in all, so that a damaged or hostile file cannot fill the memory. Real ones
// have some thousand names and a few dozen streams.
inline constexpr std::size_t kMostNames = std::size_t{1} << 20;
inline constexpr std::size_t kMostNameBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMostStreams = std::size_t{1} << 16;

// All that lives at one moment together: sums of what a file says must not overflow.
inline constexpr std::int64_t kMostLiveBytes = std::int64_t{1} << 62;

// For a message: at most 60 characters, what is not printable as \xNN.
[[nodiscard]] std::string shown(std::string_view bytes);

// Throws InputError: "[trace] expected EXPECTED at byte 93 of run.hrtrace, received ...".
[[noreturn]] void fault(const std::string& file, std::uint64_t byte, const std::string& expected,
                        const std::string& received, std::string_view to_try = {});

}  // namespace headroom::trace::detail
