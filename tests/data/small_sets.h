// Writes small sets of made-up data in the exact form of the published ones, for tests and
// demonstrations. What they hold can be learned (synthetic.h).
//
//   data::write_flowers102("data/flowers102", {.train = 4, .validation = 1, .test = 1});
//   const auto set = data::flowers102("data/flowers102", Split::train);   // 408 images
//
// Folders are made where needed. Files that are there are replaced, others stay. All functions
// throw WriteError; those that write images throw UnavailableError without the plugin
// (image_set.h).
#pragma once

#include <cstdint>
#include <filesystem>

namespace headroom::data {

struct SmallImages {
  std::int64_t classes = 0;     // 0: as many as the published set has; 10 for image_folder
  std::int64_t train = 4;       // images of each class
  std::int64_t validation = 1;  // likewise; CUB-200 has none
  std::int64_t test = 1;
  std::int64_t side = 64;  // pixels of the shorter side; sides vary as in photographs
  std::uint64_t seed = 0;
};

void write_flowers102(const std::filesystem::path& folder, const SmallImages& options = {});
void write_cub200(const std::filesystem::path& folder, const SmallImages& options = {});
// With train/, val/ and, if it has images, test/.
void write_image_folder(const std::filesystem::path& folder, const SmallImages& options = {});

struct SmallTokens {
  std::int64_t vocabulary = 256;    // above 65,536: tokens of 32 bits
  std::int64_t train = 65'536;      // tokens
  std::int64_t validation = 8'192;  // 0: no val.bin
  std::int64_t document = 200;      // about the tokens of a document
  bool mask = false;                // of the first quarter of each document
  std::uint64_t seed = 0;
};

// train.bin and val.bin, each with its .json and, if asked for, its mask.
void write_tokens(const std::filesystem::path& folder, const SmallTokens& options = {});

}  // namespace headroom::data
