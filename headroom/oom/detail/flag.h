// Lines that only set something: a flag that is off, a setting for the case, an entry of a
// program's data.
#pragma once

#include <string_view>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

// "oomkilled": false, oom_kill 0, out_of_memory=no: the flag says that it did not happen.
// CUDA_ERROR_OUT_OF_MEMORY = 2 only gives a name its number.
[[nodiscard]] bool is_switched_off(std::string_view text, Span said);

// on_oom: "CUDA out of memory ...", retry_on=...: `before` ends with the key of a setting.
[[nodiscard]] bool is_value_of_setting(std::string_view before);

// "label: out of memory", "prompts: 'why ...'": the program shows its data.
[[nodiscard]] bool is_of_data(std::string_view text, Span said);

// The name before a colon or an equals sign at the end of `before`; opening brackets and quotes may
// follow it. "" if `before` ends otherwise.
[[nodiscard]] std::string_view key_of(std::string_view before);

}  // namespace headroom::oom::detail
