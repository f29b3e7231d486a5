#include "headroom/answer/profile.h"

#include <nlohmann/json.hpp>

namespace headroom::answer {

Json to_json(const ProfileAnswer& answer, const Json& rows) {
  Json json = rows;
  json["model"] = {{"name", answer.model},
                   {"parameters", answer.parameters},
                   {"trainable_parameters", answer.trainable_parameters}};
  json["settings"] = answer.settings ? model::to_json(*answer.settings) : Json();
  json["device"] = answer.card ? to_json(*answer.card) : Json();
  json["fits"] = answer.card ? Json(answer.fits) : Json();
  json["steps"] = answer.steps;
  json["notes"] = answer.notes;
  return json;
}

}  // namespace headroom::answer
