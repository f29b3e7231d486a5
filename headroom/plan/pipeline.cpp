#include "headroom/plan/pipeline.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::plan {

std::string to_string(Pipeline pipeline) {
  return pipeline == Pipeline::gpipe ? "gpipe" : "1f1b";
}

Pipeline pipeline_named(std::string_view name) {
  for (const Pipeline one : {Pipeline::one_by_one, Pipeline::gpipe})
    if (name == to_string(one)) return one;
  throw UsageError(expectation("pipeline", "1f1b or gpipe", std::string(name), "1f1b"));
}

std::vector<Pass> passes(Pipeline pipeline, int stage, int stages, int parts) {
  const int ahead = most_in_flight(pipeline, stage, stages, parts);
  std::vector<Pass> all;
  if (parts == 0) return all;
  for (int part = 0; part < ahead - 1; ++part) all.push_back({true, part});
  for (int part = ahead - 1; part < parts; ++part) {
    all.push_back({true, part});
    all.push_back({false, part - ahead + 1});
  }
  for (int part = parts - ahead + 1; part < parts; ++part) all.push_back({false, part});
  return all;
}

int most_in_flight(Pipeline pipeline, int stage, int stages, int parts) {
  return pipeline == Pipeline::gpipe ? parts : std::min(stages - stage, parts);
}

}  // namespace headroom::plan
