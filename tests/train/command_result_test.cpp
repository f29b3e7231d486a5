// What comes out of `headroom train` can be used: by Headroom itself here, by transformers and peft
// in result_peer.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "headroom/base/file.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class TrainResult : public ::testing::Test {
 protected:
  [[nodiscard]] Arguments on_flowers(const std::string& out, const Arguments& more) const {
    return Arguments{"dataset=flowers102", "data_dir=" + world_.flowers102(), "batch_size=12",
                     "device=cpu",         "out=" + world_.path(out),         "--json"} +
           more;
  }
  [[nodiscard]] Json json_in(const std::string& file) const {
    return Json::parse(read_file(world_.path(file)).value_or("{}"));
  }

  TrainingWorld world_;
};

// model/ had no config.json and no class names: `model.config="r/model"` could not be read, and
// nothing in the folder said which class is which flower.
TEST_F(TrainResult, AModelIsReadByItsFolder) {
  const Outcome trained = world_.train(
      on_flowers("r", {"model=full", "model.config=" + world_.vit(), "epochs=3", "lr=1e-2"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json config = json_in("r/model/config.json");
  EXPECT_EQ(config.at("architectures"), Json({"ViTForImageClassification"}));
  EXPECT_EQ(config.at("id2label").size(), 102U);
  EXPECT_EQ(config.at("label2id").size(), 102U);
  const Json images = json_in("r/model/preprocessor_config.json");
  EXPECT_EQ(images.at("crop_size").at("height"), 32);
  EXPECT_EQ(images.at("size").at("shortest_edge"), 37);
  const Outcome measured = world_.train(on_flowers(
      "elsewhere", {"--eval-only", "model=full", "model.config=" + world_.path("r/model")}));
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(measured.json().at("val_loss"), trained.json().at("val_loss"));
}

// There was no way to learn what the model says of an image.
TEST_F(TrainResult, AnEvaluationTellsWhatItPredicts) {
  const Outcome trained = world_.train(
      on_flowers("r", {"model=full", "model.config=" + world_.vit(), "epochs=3", "lr=1e-2"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json measured = world_.train({"--eval-only", "out=" + world_.path("r"), "--json"}).json();
  const Json all = measured.at("predictions");
  ASSERT_EQ(all.size(), 12U);
  double right = 0;
  for (const Json& one : all) {
    EXPECT_TRUE(fs::exists(one.at("file").get<std::string>()));
    EXPECT_GT(one.at("probability").get<double>(), 1.0 / 102);
    EXPECT_LE(one.at("probability").get<double>(), 1.0);
    EXPECT_EQ(one.at("name"),
              json_in("r/model/config.json").at("id2label").at(one.at("label").dump()));
    right += one.at("label") == one.at("actual") ? 1 : 0;
  }
  EXPECT_DOUBLE_EQ(right / 12, measured.at("val_accuracy").get<double>());
}

// `weights="r/adapter"`: "expected model.safetensors", and no key took an adapter.
TEST_F(TrainResult, AnAdapterIsTrainedFurther) {
  const Outcome trained =
      world_.train(on_flowers("r", {"model=lora", "model.config=" + world_.vit(), "model.lora_r=4",
                                    "epochs=6", "lr=1e-2"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json config = json_in("r/adapter/adapter_config.json");
  EXPECT_EQ(config.at("base_model_name_or_path"), fs::canonical(world_.vit()).string());
  EXPECT_EQ(config.at("modules_to_save"), Json({"classifier"}));
  const Arguments adapter{"weights=" + world_.path("r/adapter")};
  for (const char* model : {"model=lora", "model=full"}) {
    const Outcome measured =
        world_.train(on_flowers("elsewhere", adapter + Arguments{model, "--eval-only"}));
    ASSERT_EQ(measured.exit_code, 0) << measured.err;
    EXPECT_NEAR(measured.json().at("val_loss").get<double>(),
                trained.json().at("val_loss").get<double>(), 1e-5)
        << model;
  }
  const Outcome further = world_.train(on_flowers("further", adapter + Arguments{"epochs=1"}));
  EXPECT_EQ(further.exit_code, 0) << further.err;
  EXPECT_EQ(json_in("further/adapter/adapter_config.json").at("r"), 4);
}

TEST_F(TrainResult, ALanguageModelIsReadByItsFolder) {
  const Outcome trained = world_.train(world_.on_tokens("r", {"steps=6"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(json_in("r/model/config.json").at("n_embd"), 32);
  const Outcome measured = world_.train(
      world_.on_tokens("e", {"--eval-only", "model.config=" + world_.path("r/model")}));
  EXPECT_EQ(measured.json().at("val_loss"), trained.json().at("val_loss")) << measured.err;
  EXPECT_TRUE(measured.json().at("predictions").is_null());
}

}  // namespace
}  // namespace headroom::testing
