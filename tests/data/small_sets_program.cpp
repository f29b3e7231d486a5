// small_sets FOLDER: small made-up sets in the form of the published ones, and a tiny ViT with
// random weights, for the demonstration and the Makefile's recipes:
//   FOLDER/flowers102, FOLDER/cub200, FOLDER/vit-tiny
#include <ATen/ATen.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/models/initialise.h"
#include "headroom/weights/safetensors.h"
#include "tests/data/small_sets.h"

namespace {

using namespace headroom;

void write_model(const std::filesystem::path& folder) {
  const Json config{{"architectures", {"ViTForImageClassification"}},
                    {"model_type", "vit"},
                    {"hidden_size", 48},
                    {"intermediate_size", 96},
                    {"num_hidden_layers", 3},
                    {"num_attention_heads", 4},
                    {"image_size", 48},
                    {"patch_size", 8}};
  at::manual_seed(0);
  const auto model = models::build({config, "config.json"});
  models::initialise(*model);
  weights::save(*model, folder);
  write_file_atomically(folder / "config.json", config.dump(1) + "\n");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: small_sets FOLDER\n");
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  // So few classes that a recipe of seconds learns to tell them apart.
  data::write_flowers102(folder / "flowers102",
                         {.classes = 10, .train = 16, .validation = 4, .test = 1});
  data::write_cub200(folder / "cub200", {.classes = 10, .train = 16, .test = 4});
  write_model(folder / "vit-tiny");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "small_sets: %s\n", error.what());
  return 1;
}
