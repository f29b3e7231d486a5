// The functions that Headroom needs of libjpeg-turbo, libpng and libmatio, in a table that
// libheadroom_images.so fills. libheadroom.so is linked without these libraries, so that it runs
// where they are missing, and no other training pays for loading them.
//
//   Pixels pixels;
//   if (const std::string problem = functions.decode(bytes, 1, pixels); !problem.empty()) ...
//
// Functions return "" on success, and otherwise the error, in the library's words. Threads: call
// them from any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::data::detail {

// Incremented with every change below: a library with another version is refused, not misread.
inline constexpr int kImageFunctionsVersion = 2;

struct PixelSize {
  int width = 0, height = 0;
};

// Red, green and blue of each pixel, row by row.
struct Pixels {
  PixelSize size;
  std::vector<unsigned char> rgb;
};

using MatVariables = std::vector<std::pair<std::string, std::vector<double>>>;

struct ImageFunctions {
  // The size that a JPEG or PNG file states.
  std::string (*size_of)(std::string_view bytes, PixelSize& size);
  // At 1 / `divisor` of its size (1, 2, 4 or 8), rounded up; a PNG file at its whole size. Grey
  // images and those for print (CMYK) become red, green and blue.
  std::string (*decode)(std::string_view bytes, int divisor, Pixels& pixels);
  std::string (*encode)(const Pixels& pixels, int quality, std::string& jpeg);
  // All numbers of a variable, column by column.
  std::string (*read_mat)(const char* file, const char* variable, std::vector<double>& values);
  // A file of MATLAB's level 5 with these variables, each a row of whole numbers below 65,536.
  std::string (*write_mat)(const char* file, const MatVariables& variables);
};

}  // namespace headroom::data::detail
