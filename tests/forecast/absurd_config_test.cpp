// A config.json of any numbers gives a forecast or an error that names the file, never a crash and
// never figures that have run over 64 bits.
#include <gmock/gmock.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/model/detail/embedded.h"
#include "headroom/model/model_config.h"

namespace headroom::forecast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string answer(const Json& file, const model::Settings& settings = {}) {
  try {
    const Forecast forecast = forecast_of(model::ModelConfig(file, "config.json"), settings);
    const trace::Parts& parts = forecast.at_peak;
    for (const Bytes part : {parts.parameters, parts.gradients, parts.optimizer, parts.activations,
                             parts.temporaries, parts.inputs, forecast.reserved})
      if (part.count < 0) return "negative: " + to_string(part);
    return "fine";
  } catch (const InputError& error) {
    return error.what();
  } catch (const UsageError& error) {  // a row longer than the positions
    return error.what();
  }
}

// hidden_size 1000000000 ended with "this is a bug in Headroom", and 10^15 tokens were told "at
// least 1 ..., received 10^15".
TEST(AbsurdConfig, HugeNumbersAreRefusedNamingTheKeyAndTheMost) {
  for (const auto& [key, most] :
       std::vector<std::pair<const char*, const char*>>{{"hidden_size", "at most 1048576"},
                                                        {"intermediate_size", "at most 1048576"},
                                                        {"num_hidden_layers", "at most 1000"},
                                                        {"vocab_size", "at most 67108864"}})
    EXPECT_THAT(answer({{"model_type", "llama"}, {key, 1'000'000'000'000'000}}),
                AllOf(HasSubstr(most), HasSubstr("`" + std::string(key) + "` in config.json"),
                      HasSubstr("'1000000000000000'")));
  EXPECT_THAT(answer({{"model_type", "vit"}, {"num_labels", 1'000'000'000'000'000}}),
              HasSubstr("`num_labels` in config.json"));
}

// LibTorch refused it in the middle of the model, which was "a bug in Headroom".
TEST(AbsurdConfig, DropoutIsAShare) {
  EXPECT_THAT(answer({{"model_type", "gpt2"}, {"resid_pdrop", 7}}),
              AllOf(HasSubstr("from 0 to 1 for `resid_pdrop` in config.json"), HasSubstr("'7'")));
  EXPECT_EQ(answer({{"model_type", "gpt2"}, {"resid_pdrop", 0.5}}), "fine");
}

TEST(AbsurdConfig, SizesThatAreTooLargeTogetherAreRefusedToo) {
  const Json file = {{"model_type", "mixtral"},      {"hidden_size", 1 << 20},
                     {"intermediate_size", 1 << 20}, {"num_local_experts", 4096},
                     {"num_hidden_layers", 1000},    {"num_attention_heads", 1024},
                     {"num_key_value_heads", 1024}};
  EXPECT_THAT(answer(file),
              AllOf(HasSubstr("some machine could hold in config.json"), HasSubstr("more than")));
}

TEST(AbsurdConfig, NoNumberOfAnyKeyOfAnyTypeCrashes) {
  const Json types =
      parse_json(model::embedded::model_types_json(), "model_types.json").at("types");
  int asked = 0;
  for (const auto& [type, known] : types.items())
    for (const auto& [key, usual] : known.at("defaults").items()) {
      if (usual.is_boolean() || usual.is_string() || usual.is_object()) continue;
      for (const Json& number :
           {Json(-1), Json(0), Json(1), Json(3), Json(7), Json(10'000), Json(1 << 20),
            Json(1'000'000'000), Json(INT64_MAX), Json(UINT64_MAX), Json(1e30), Json(0.5)}) {
        const Json value =
            usual.is_array() ? Json::array({number, number, number, number}) : number;
        const std::string said = answer({{"model_type", type}, {key, value}});
        EXPECT_THAT(said, ::testing::Not(HasSubstr("negative")))
            << type << " " << key << " " << value;
        ++asked;
      }
    }
  EXPECT_GT(asked, 3000);
}

}  // namespace
}  // namespace headroom::forecast
