// Exit codes are part of the contract (docs/reference/exit-codes.md): scripts rely on them.
#pragma once

namespace headroom::cli {

using ExitCode = int;

inline constexpr ExitCode kOk = 0;
inline constexpr ExitCode kFailed = 1;
inline constexpr ExitCode kDoesNotFit = 2;
inline constexpr ExitCode kUsage = 64;
inline constexpr ExitCode kBadInput = 65;
inline constexpr ExitCode kUnavailable = 69;
inline constexpr ExitCode kInternal = 70;
inline constexpr ExitCode kCannotWrite = 73;
inline constexpr ExitCode kBusy = 75;
inline constexpr ExitCode kOutOfMemory = 76;

}  // namespace headroom::cli
