#include "tests/train/command_world.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "headroom/base/file.h"
#include "headroom/models/initialise.h"
#include "headroom/weights/safetensors.h"
#include "tests/data/small_sets.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGpt = R"({
  "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 32, "n_head": 2,
  "n_layer": 2, "n_positions": 64, "vocab_size": 256, "bos_token_id": 0, "eos_token_id": 0,
  "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1})";

constexpr const char* kVit = R"({
  "architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 32,
  "patch_size": 8, "num_channels": 3})";

constexpr data::SmallImages kImages{.classes = 6, .train = 6, .validation = 2, .test = 2};

std::string published_model(const fs::path& folder, const char* config) {
  if (fs::exists(folder)) return folder;
  fs::create_directories(folder);
  write_file_atomically(folder / "config.json", config);
  at::manual_seed(1);
  const auto model = models::build(model::read_config(folder));
  models::initialise(*model);
  weights::save(*model, folder);
  return folder;
}

}  // namespace

Arguments operator+(Arguments first, const Arguments& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

TrainingWorld::TrainingWorld() {
  set("OMP_NUM_THREADS", "1");
}

std::string TrainingWorld::gpt() const {
  return published_model(path("gpt"), kGpt);
}

std::string TrainingWorld::gpt_without_dropout() const {
  std::string config = kGpt;
  for (std::size_t at = config.find("0.1"); at != std::string::npos; at = config.find("0.1"))
    config.replace(at, 3, "0.0");
  return published_model(path("plain-gpt"), config.c_str());
}

std::string TrainingWorld::vit() const {
  return published_model(path("vit"), kVit);
}

std::string TrainingWorld::tokens() const {
  if (!fs::exists(path("tokens")))
    data::write_tokens(path("tokens"), {.train = 8'192, .validation = 1'024});
  return path("tokens");
}

std::string TrainingWorld::flowers102() const {
  if (!fs::exists(path("flowers102"))) data::write_flowers102(path("flowers102"), kImages);
  return path("flowers102");
}

std::string TrainingWorld::cub200() const {
  if (!fs::exists(path("cub200"))) data::write_cub200(path("cub200"), kImages);
  return path("cub200");
}

Arguments TrainingWorld::on_tokens(const std::string& out, const Arguments& more) const {
  return Arguments{"model=full", "model.config=" + gpt(), "dataset=tokens", "data_dir=" + tokens(),
                   "seq=16",     "batch_size=8",          "lr=1e-3",        "out=" + path(out),
                   "--gpus",     "sim:1x64MiB",           "--json"} +
         more;
}

// A step's plans are priced in a child process. clang 14's address sanitizer forks with its own
// allocator locked if another thread is in it, and then the child hangs: there, no threads load.
static Arguments command(const Arguments& arguments) {
  Arguments command = {"train"};
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  command.push_back("num_workers=0");
#endif
#endif
  return command + arguments;
}

Outcome TrainingWorld::train(const Arguments& arguments) const {
  return headroom(command(arguments));
}

std::unique_ptr<Running> TrainingWorld::start_training(const Arguments& arguments) const {
  return start(command(arguments));
}

std::vector<Json> TrainingWorld::metrics(const std::string& out, const char* key) const {
  std::vector<Json> found;
  const std::string text = read_file(path(out) + "/metrics.jsonl").value_or("");
  for (const std::string& line : lines_of(text))
    if (Json document = Json::parse(line); document.contains(key)) found.push_back(document);
  return found;
}

std::string weights_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  if (outcome.exit_code != 0) return "none, it ended with " + std::to_string(outcome.exit_code);
  return outcome.json().at("weights_sha256").get<std::string>();
}

std::vector<std::string> events_of(const Outcome& outcome) {
  std::vector<std::string> kinds;
  const Json document = outcome.json();
  for (const Json& event : document.at("events"))
    kinds.push_back(event.at("kind").get<std::string>());
  return kinds;
}

}  // namespace headroom::testing
