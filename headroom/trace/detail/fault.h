// The report of a malformed file by any reader, and the limits that all readers share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::trace::detail {

// Limits for a whole trace, so that a damaged or hostile file cannot fill the memory. Real traces
// have some thousand names and a few dozen streams.
inline constexpr std::size_t kMostNames = std::size_t{1} << 20;
inline constexpr std::size_t kMostNameBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMostStreams = std::size_t{1} << 16;

// Devices of a snapshot, read or written: each costs memory, and possibly a spool file.
inline constexpr std::int64_t kMostDevices = 1024;

// Limit for the bytes live at one moment, so that sums of a file's figures do not overflow.
inline constexpr std::int64_t kMostLiveBytes = std::int64_t{1} << 62;

// Text for a message: at most 60 bytes, unprintable ones as \xNN.
[[nodiscard]] std::string shown(std::string_view bytes);

// Throws InputError: "[trace] expected EXPECTED at byte 93 of run.hrtrace, received ...".
[[noreturn]] void fault(const std::string& file, std::uint64_t byte, const std::string& expected,
                        const std::string& received, std::string_view to_try = {});

}  // namespace headroom::trace::detail
