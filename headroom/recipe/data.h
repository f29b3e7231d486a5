// The data of a training, in batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headroom/config/training.h"
#include "headroom/data/image_set.h"
#include "headroom/data/loader.h"
#include "headroom/train/batches.h"

namespace headroom::recipe {

struct Data {
  std::shared_ptr<data::Loader> train, evaluation;  // `evaluation` may be null
  std::int64_t outputs = 0;                         // classes, or tokens; 0: not known
  // For images on disk, their files and the names of their classes; else null. Not shuffled in
  // `evaluation`.
  std::shared_ptr<const data::ImageSet> images, evaluation_images;
  // "flowers102: 1020 to train on, 1020 to evaluate on", and a line for each thing left out.
  std::string words;
};

// `pinned`: in page-locked memory of the host. Throws InputError for missing data, with what was
// expected where and how to get it.
[[nodiscard]] Data data_of(const config::Training& training, bool pinned);

// Tensors of the loader as a published model takes them, images in the type of its weights.
[[nodiscard]] train::Batches batches_of(const std::shared_ptr<data::Loader>& loader,
                                        const config::Training& training);

}  // namespace headroom::recipe
