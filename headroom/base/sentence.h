// What a person is told of an error.
#pragma once

#include <string>

namespace headroom {

// Without the function that noticed it, which means nothing to a person: "[parse_bytes] expected
// ..." is "expected ...". An option or a place of a file is kept: "[--need] expected ..." is
// "--need: expected ...".
[[nodiscard]] std::string sentence_of(const std::string& what);

}  // namespace headroom
