// Rotary positions (RoPE), as config.json describes them: how far each pair of a head's numbers
// rotates per token, and the kinds of `rope_scaling` that extend models to longer texts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/model/model_config.h"

namespace headroom::model {

enum class RopeKind { plain, linear, dynamic, yarn, longrope, llama3 };

struct Rope {
  Rope() = default;
  // Throws InputError for an odd width, and for a `rope_scaling` that transformers does not know or
  // that lacks a number.
  Rope(const ModelConfig& config, std::int64_t width);

  RopeKind kind = RopeKind::plain;
  std::int64_t width = 0;  // of the rotated part of a head
  std::int64_t most = 0;   // the most positions that the model has
  double trained = 0;      // the positions that it was trained for before the extension
  double base = 0;
  double factor = 1;
  double low_frequency = 1, high_frequency = 4;    // llama3
  double fast = 32, slow = 1;                      // yarn: rotations within the trained length
  bool truncates = true;                           // yarn
  double scaling = 1;                              // of cosines and sines
  std::vector<float> short_factors, long_factors;  // longrope: one per pair
};

}  // namespace headroom::model
