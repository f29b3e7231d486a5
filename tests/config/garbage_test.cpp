// Random configurations: whatever stands in a file or on the command line is read or refused with
// an error of the family, and what was read survives its way through a file.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "headroom/base/error.h"
#include "headroom/config/detail/yaml.h"
#include "headroom/config/explain.h"
#include "headroom/config/resolved.h"
#include "headroom/config/training_keys.h"
#include "tests/support/garbage.h"

namespace headroom::config {
namespace {

constexpr int kRounds = 3000;
constexpr std::string_view kOfYaml = "&*!-?:|>{}[],#'\"\n 64%~.=\t\\";

const std::string kFile =
    "training:\n"
    "  batch_size: 32  # rows\n"
    "  lr: 1e-4\n"
    "  fp16: yes\n"
    "  model: {name: lora, lora_r: 8, lora_targets: [q, 'v']}\n"
    "  loss: chunked:1024\n"
    "budget: \"70%\"\n"
    "model_variants:\n"
    "  - {min_total: 40GiB, model: &a vit-large}\n"
    "  - model: *a\n"
    "    min_total: 1GB\n"
    "    batch_size: 4\n"
    "out: |\n"
    "  folder\n"
    "weights: ~\n";

std::vector<std::string> random_overrides(std::mt19937& random) {
  const std::vector<std::string> known{"batch_size=8",
                                       "training.lr=1e-3",
                                       "model.lora_targets=[q, v]",
                                       "budget=10GiB",
                                       "device=cuda:2",
                                       "model_variants=[{min_total: 40GiB, model: A}, {model: B}]",
                                       "out=a b"};
  std::vector<std::string> all;
  for (std::size_t n = random() % 4; n > 0; --n) {
    const std::string& other = known[random() % known.size()];
    const std::string& text = known[random() % known.size()];
    all.push_back(random() % 3 == 0 ? text
                                    : headroom::testing::mutated(text, other, random,
                                                                 random() % 2 == 0 ? kOfYaml : ""));
  }
  return all;
}

void add_yaml(Resolved& config, const std::string& yaml) {
  detail::read_yaml(training_keys(), yaml, "my.yaml",
                    [&](const std::string& key, const Json& value, const std::string& place) {
                      config.set(key, value, place);
                    });
}

void expect_same_through_yaml(const Resolved& config) {
  Resolved again(training_keys());
  add_yaml(again, config.to_yaml());
  ASSERT_EQ(again.to_json(), config.to_json()) << config.to_yaml();
  ASSERT_EQ(again.to_yaml(), config.to_yaml());
}

TEST(ConfigGarbage, IsReadOrRefusedByTheFamilyOfErrors) {
  std::mt19937 random(20'261);
  int read = 0;
  for (int i = 0; i < kRounds; ++i) {
    const std::string_view likely = random() % 2 == 0 ? kOfYaml : "";
    const bool whole = random() % 4 == 0;
    const std::string yaml =
        whole ? kFile : headroom::testing::mutated(kFile, kFile, random, likely);
    try {
      Resolved config = resolve(training_keys(), {.overrides = random_overrides(random)});
      add_yaml(config, yaml);
      ASSERT_FALSE(explain(config).empty());
      expect_same_through_yaml(config);
      ++read;
    } catch (const UsageError&) {
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(read, kRounds / 20);
}

TEST(ConfigGarbage, EveryCutOfAFileIsReadOrRefused) {
  for (std::size_t cut = 0; cut < kFile.size(); ++cut) {
    Resolved config(training_keys());
    try {
      add_yaml(config, kFile.substr(0, cut));
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace headroom::config
