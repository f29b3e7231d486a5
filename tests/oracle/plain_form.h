// The plain form of a stream of operations, one a line (`a ID BYTES [STREAM]`, `f ID`, ...;
// `headroom trace replay --help` lists them), read and written by a few lines of the tests' own:
// the product's reader is judged by it.
#pragma once

#include <istream>
#include <span>
#include <string>
#include <vector>

#include "headroom/allocator/operation.h"

namespace headroom::oracle {

struct PlainStream {
  std::vector<allocator::Operation> operations;
  std::vector<std::string> settings_texts;
};

// Throws std::runtime_error naming the line.
[[nodiscard]] PlainStream read_plain_form(std::istream& in);
[[nodiscard]] std::string to_plain_form(const std::vector<allocator::Operation>& operations,
                                        const std::vector<std::string>& settings_texts);

}  // namespace headroom::oracle
