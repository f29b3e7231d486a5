#include "headroom/model/stored_precision.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "headroom/forecast/closed_form.h"

namespace headroom::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelConfig config_with(const char* more) {
  return ModelConfig(parse_json(std::string(R"({"model_type": "llama")") + more + "}", "test"),
                     "config.json");
}

// A file's torch_dtype and quantization_config were dropped without a word.
TEST(UnheededPrecision, NamesTheTypeOfTheFileAndTheOptionThatCountsIt) {
  for (const char* said : {R"(, "torch_dtype": "bfloat16")", R"(, "dtype": "torch.bfloat16")"})
    EXPECT_THAT(unheeded_precision(config_with(said), {}),
                ElementsAre(AllOf(HasSubstr("torch_dtype bfloat16"),
                                  HasSubstr("float32 is counted"), HasSubstr("--dtype bfloat16"))))
        << said;
}

TEST(UnheededPrecision, NamesTheBitsOfTheFileAndTheOptionThatCountsThem) {
  for (const auto& [said, option] : std::vector<std::pair<const char*, const char*>>{
           {R"({"load_in_4bit": true})", "--quantize 4bit --lora-rank 8"},
           {R"({"load_in_8bit": true})", "--quantize 8bit --lora-rank 8"},
           {R"({"quant_method": "gptq", "bits": 4})", "--quantize 4bit"},
           {R"({"quant_method": "fp8"})", "(fp8)"},
           {R"({})", "(other bits)"}})
    EXPECT_THAT(unheeded_precision(
                    config_with((R"(, "quantization_config": )" + std::string(said)).c_str()), {}),
                ElementsAre(AllOf(HasSubstr("quantization_config"), HasSubstr(option))))
        << said;
}

TEST(UnheededPrecision, IsEmptyIfTheSettingsAgreeWithTheFile) {
  const ModelConfig config =
      config_with(R"(, "torch_dtype": "bfloat16", "quantization_config": {"load_in_4bit": true})");
  Settings settings;
  settings.dtype = Dtype::bfloat16;
  settings.quantize = Quantize::int4;
  settings.lora_rank = 8;
  EXPECT_THAT(unheeded_precision(config, settings), IsEmpty());
  EXPECT_THAT(unheeded_precision(config_with(""), {}), IsEmpty());
  EXPECT_THAT(unheeded_precision(config_with(R"(, "torch_dtype": "float32")"), {}), IsEmpty());
  EXPECT_THAT(unheeded_precision(config_with(R"(, "torch_dtype": 3)"), {}), IsEmpty());
}

// Figures stay as they were: the note names the difference, the option makes it.
TEST(UnheededPrecision, LeavesTheFiguresAlone) {
  EXPECT_EQ(forecast::forecast_of(config_with(R"(, "torch_dtype": "bfloat16")"), {}).at_peak,
            forecast::forecast_of(config_with(""), {}).at_peak);
}

}  // namespace
}  // namespace headroom::model
