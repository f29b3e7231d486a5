// What a line only sets: a flag that is off, a setting for the case, an entry of a program's data.
#pragma once

#include <string_view>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

// "oomkilled": false, oom_kill 0, out_of_memory=no: the flag says that it did not happen; and
// CUDA_ERROR_OUT_OF_MEMORY = 2 gives a name its number.
[[nodiscard]] bool is_switched_off(std::string_view text, Span said);

// on_oom: "CUDA out of memory ...", retry_on=...: the key that `before` ends with is a setting.
[[nodiscard]] bool is_value_of_setting(std::string_view before);

// "label: out of memory", "prompts: 'why ...'": what a program shows of its data.
[[nodiscard]] bool is_of_data(std::string_view text, Span said);

// The name before a colon or an equals sign that ends `before`, but for opening brackets and
// quotes; nothing if it does not end so.
[[nodiscard]] std::string_view key_of(std::string_view before);

}  // namespace headroom::oom::detail
