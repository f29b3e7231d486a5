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
          .total = Bytes{json.at("total_bytes").get<std::int64_t>()},
          .reserved = Bytes{json.at("reserved_bytes").get<std::int64_t>()},
          .profile = json.at("profile").get<std::string>()};
}

}  // namespace headroom::gpu
