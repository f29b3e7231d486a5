#include "headroom/gpu/simulated_json.h"

#include <nlohmann/json.hpp>

namespace headroom::gpu {

Json to_json(const SimulatedCard& card) {
  return {{"name", card.name},
          {"total_bytes", card.total.count},
          {"reserved_bytes", card.reserved.count},
          {"profile", card.profile}};
}

SimulatedCard card_from_json(const Json& json) {
  return {.name = json.at("name").get<std::string>(),
          .total = bytes_from(json.at("total_bytes")),
          .reserved = bytes_from(json.at("reserved_bytes")),
          .profile = json.at("profile").get<std::string>()};
}

}  // namespace headroom::gpu
