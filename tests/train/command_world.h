// `headroom train` as a user runs it, in a world with small models and data in published form.
//
//   const TrainingWorld world;
//   const Outcome outcome = world.train({"dataset=tokens", "data_dir=" + world.tokens(), ...});
//   EXPECT_EQ(weights_of(outcome), ...);
//
// Model: a folder with config.json and model.safetensors, as from the hub.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/cli/with_engine.h"

namespace headroom::testing {

// A list of arguments with more behind it.
Arguments operator+(Arguments first, const Arguments& more);

class TrainingWorld : public WithEngine {
 public:
  TrainingWorld();

  // Made at the first call. They return the folder.
  [[nodiscard]] std::string gpt() const;  // GPT-2 of two layers, 256 tokens, with dropout
  [[nodiscard]] std::string gpt_without_dropout() const;
  [[nodiscard]] std::string vit() const;         // ViT of two layers, images of 32 x 32
  [[nodiscard]] std::string tokens() const;      // train.bin and val.bin
  [[nodiscard]] std::string flowers102() const;  // 6 classes of 6, 2 to evaluate on
  [[nodiscard]] std::string cub200() const;      // likewise

  // The GPT on the tokens, on a card of 64 MiB, with --json. Of a key given twice the last counts.
  [[nodiscard]] Arguments on_tokens(const std::string& out, const Arguments& more = {}) const;

  [[nodiscard]] Outcome train(const Arguments& arguments) const;
  [[nodiscard]] std::unique_ptr<Running> start_training(const Arguments& arguments) const;

  // The documents of out/metrics.jsonl that have the key, in order.
  [[nodiscard]] std::vector<Json> metrics(const std::string& out, const char* key = "step") const;
};

// weights_sha256 of a run with --json that ended well.
std::string weights_of(const Outcome& outcome);
// Its events: "oom", "retry", ...
std::vector<std::string> events_of(const Outcome& outcome);

}  // namespace headroom::testing
