// Made-up data that can be learned, for tests, demonstrations and machines without data: a model's
// loss falls as on real data. The same arguments give the same examples on every machine.
//
//   const auto set = data::synthetic_tokens({.vocabulary = 256, .seq = 64, .size = 1000});
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/data/dataset.h"
#include "headroom/data/image_set.h"
#include "headroom/data/token_file.h"

namespace headroom::data {

struct SyntheticTokens {
  std::int64_t vocabulary = 256;
  std::int64_t seq = 64;
  std::int64_t size = 1024;    // examples
  std::uint64_t seed = 0;      // of the language and of the texts
  Split split = Split::train;  // other texts in the same language
  TokenOptions::Labels labels = TokenOptions::Labels::own;
};

// Texts in a made-up language: nine of ten tokens follow from the one before, by a fixed table; the
// others are random. Examples are as a TokenFile's.
[[nodiscard]] std::shared_ptr<Dataset> synthetic_tokens(const SyntheticTokens& options);

struct SyntheticImages {
  std::int64_t classes = 10;
  std::int64_t size = 1024;  // examples
  std::uint64_t seed = 0;
  Split split = Split::train;  // other pictures of the same classes
  ImageOptions image = {};     // its side, mean and deviation
};

// Pictures of coloured stripes, whose direction and colours are the class's, with noise. Examples
// are as an ImageSet's, with labels in turn: 0, 1, ... Needs no plugin.
[[nodiscard]] std::shared_ptr<Dataset> synthetic_images(const SyntheticImages& options);

}  // namespace headroom::data
