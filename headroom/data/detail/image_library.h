// Finds libheadroom_images.so, which lies beside libheadroom.so, and loads it when an image is
// first used. It stays for the life of the process.
#pragma once

#include <filesystem>

#include "headroom/data/detail/image_functions.h"

namespace headroom::data::detail {

// Throws UnavailableError if the library is missing, or one of those that it needs. The next call
// tries again.
[[nodiscard]] const ImageFunctions& image_functions();

// The functions of this file. For image_functions() and tests.
[[nodiscard]] const ImageFunctions& load_images_from(const std::filesystem::path& library);

}  // namespace headroom::data::detail
