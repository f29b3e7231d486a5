// The answer of `headroom profile`: the subject, the device and the rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/answer/answer.h"

namespace headroom::answer {

struct ProfileAnswer {
  std::string model;
  long long parameters = 0, trainable_parameters = 0;
  std::optional<model::Settings> settings = {};  // as Answer::settings
  std::optional<gpu::SimulatedCard> card = {};   // std::nullopt: without a limit
  bool fits = true;  // false: the rows are those of a card without a limit
  int steps = 0;
  std::vector<std::string> notes = {};
};

// `rows`: the document of the profile itself.
[[nodiscard]] Json to_json(const ProfileAnswer& answer, const Json& rows);

}  // namespace headroom::answer
