// Cuts a stream on which both differ down to few operations on which they still differ.
#pragma once

#include "tests/oracle/duel.h"

namespace headroom::oracle {

// As given, if they do not differ on it.
[[nodiscard]] Stream minimised(Stream stream);

// For a person and for `allocator_oracle compare`: its setup as comments, and its operations in the
// plain form.
[[nodiscard]] std::string to_text(const Stream& stream);

// The options of `allocator_oracle replay` and `compare` that stand for a setup.
[[nodiscard]] std::string to_options(const Setup& setup);

}  // namespace headroom::oracle
