#include "headroom/recipe/techniques.h"

#include <functional>
#include <map>
#include <string>

#include "headroom/base/error.h"

namespace headroom::recipe {
namespace techniques {

#define HEADROOM_TECHNIQUE(name) void name(models::Model& model, const model::Settings& settings);
#include "headroom/recipe/technique_files.inc"
#undef HEADROOM_TECHNIQUE

}  // namespace techniques

void put_into_form(models::Model& model, const model::Settings& settings) {
  using Put = std::function<void(models::Model&, const model::Settings&)>;
  static const std::map<std::string, Put> known{
#define HEADROOM_TECHNIQUE(name) {#name, techniques::name},
#include "headroom/recipe/technique_files.inc"
#undef HEADROOM_TECHNIQUE
  };
  for (const std::string& name : settings.techniques) {
    const auto found = known.find(name);
    if (found == known.end())
      throw UsageError(expectation("recipe", "a technique of recipe/techniques", name));
    found->second(model, settings);
  }
}

}  // namespace headroom::recipe
