// The names that LibTorch's headers give a program: read from the headers themselves, so that a new
// LibTorch with a new module is noticed.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace headroom::coverage {

using Names = std::set<std::string>;

// All take the folder .../include/torch.
[[nodiscard]] Names modules_in(const std::filesystem::path& torch);      // "Conv2d"
[[nodiscard]] Names functionals_in(const std::filesystem::path& torch);  // "F::conv2d"
[[nodiscard]] Names utilities_in(const std::filesystem::path& torch);  // "utils::rnn::pad_sequence"
[[nodiscard]] Names optimizers_in(const std::filesystem::path& torch);  // "optim::Adam"

// All of these, of the LibTorch the tests are built with.
[[nodiscard]] const Names& header_names();

}  // namespace headroom::coverage
