#include "headroom/answer/fit.h"

#include <nlohmann/json.hpp>

namespace headroom::answer {
namespace {

Json or_null(const std::optional<std::int64_t>& number) {
  return number ? Json(*number) : Json();
}

Json probe_json(const TriedSize& tried, Over over) {
  Json json{{"batch", tried.size}, {"fits", tried.fits}};
  if (tried.reserved) json["peak_reserved_bytes"] = tried.reserved->count;
  json["peak_process_bytes"] = tried.process.count;
  if (over == Over::seq) json["seq"] = tried.size;
  return json;
}

}  // namespace

Json to_json(const Fit& fit) {
  Json probes = Json::array();
  for (const TriedSize& tried : fit.tried) probes.push_back(probe_json(tried, fit.over));
  Json json = {{"schema", 1},
               {"method", to_string(fit.method)},
               {"model", {{"name", fit.model}}},
               {"settings", fit.settings ? model::to_json(*fit.settings) : Json()},
               {"device", to_json(fit.card)},
               {"over", fit.over == Over::batch ? "batch" : "seq"},
               {"max_batch", or_null(fit.size)},
               {"recommended_batch", or_null(fit.recommended)},
               {"capped", fit.capped},
               {"proven", fit.is_proven},
               {"probes", std::move(probes)}};
  if (fit.over == Over::seq) {
    json["max_seq"] = json["max_batch"];
    json["recommended_seq"] = json["recommended_batch"];
  }
  json["fits"] = fit.fits();
  json["advice"] = to_json(fit.advice, /*limited=*/true, /*dry_run=*/true);
  json["notes"] = fit.notes;
  return json;
}

}  // namespace headroom::answer
