// The reading side of train/checkpoint.h: one checkpoint, checked before it is used.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/base/json.h"
#include "headroom/train/checkpoint.h"
#include "headroom/train/detail/frozen_part.h"

namespace headroom::train::detail {

// These throw InputError for a checkpoint that is not sound or does not fit; then nothing has
// changed.
[[nodiscard]] Json sound_state(const std::filesystem::path& folder, FrozenPart& frozen);
[[nodiscard]] FoundCheckpoint read_checkpoint(const std::filesystem::path& folder,
                                              FrozenPart& frozen, Step& step);
void read_weights(const std::filesystem::path& folder, FrozenPart& frozen, Step& step);

// In a handler: why the checkpoint cannot be used. Memory that ran out says nothing about it and is
// thrown again.
[[nodiscard]] std::string why_refused(const std::filesystem::path& folder);

}  // namespace headroom::train::detail
