// Error texts for people.
#pragma once

#include <string>

namespace headroom {

// Drops the function name, which means nothing to a user: "[parse_bytes] expected ..." becomes
// "expected ...". An option or a place in a file stays: "[--need] expected ..." becomes "--need:
// expected ...".
[[nodiscard]] std::string sentence_of(const std::string& what);

}  // namespace headroom
