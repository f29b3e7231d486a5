#include "headroom/config/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"
#include "headroom/config/help.h"
#include "headroom/config/resolved.h"
#include "headroom/config/schema.h"
#include "headroom/config/training_keys.h"

namespace headroom::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Schema small_schema() {
  return {{{.name = "batch_size",
            .kind = Kind::whole,
            .usual = "32",
            .effect = "Rows.",
            .group = "Batch"},
           {.name = "seq", .kind = Kind::whole, .effect = "Tokens.", .group = "Batch"},
           {.name = "out",
            .kind = Kind::text,
            .usual = "run",
            .effect = "Folder.",
            .group = "Results"}},
          {"training"},
          {}};
}

TEST(Explain, IsATableOfKeysValuesAndOrigins) {
  const Schema schema = small_schema();
  Resolved config(schema);
  config.set("batch_size", "8", "my.yaml:12");
  EXPECT_EQ(explain(config),
            "key         value  origin\n"
            "batch_size  8      my.yaml:12\n"
            "seq         -      default\n"
            "out         run    default\n");
}

TEST(Explain, ALongValueShiftsItsOwnLineOnly) {
  const Schema schema = small_schema();
  Resolved config(schema);
  const std::string folder(60, 'x');
  config.set("out", folder, "command line");
  EXPECT_THAT(explain(config), StartsWith("key         value  origin\n"));
  EXPECT_THAT(explain(config), HasSubstr("out         " + folder + "  command line\n"));
}

TEST(Explain, ItsJsonHasTypedValues) {
  const Schema schema = small_schema();
  Resolved config(schema);
  config.set("batch_size", "8", "command line");
  EXPECT_EQ(to_line(explain_json(config).at("keys").at(0)),
            R"({"key":"batch_size","value":8,"origin":"command line"})");
}

TEST(Help, ListsEveryKeyWithItsDefaultUnderItsHeading) {
  const std::string help = help_of(training_keys());
  EXPECT_THAT(help, StartsWith("Model\n  model=lora "));
  EXPECT_THAT(help, HasSubstr("\n\nBatch\n  batch_size=32 "));
  EXPECT_THAT(help, HasSubstr("\n  seq=N "));
  for (const Key& key : training_keys().keys())
    EXPECT_THAT(help, HasSubstr("\n  " + key.name + "=")) << key.name;
}

TEST(Help, KeepsToTheWidth) {
  for (const int width : {60, 80, 120}) {
    const std::string help = help_of(training_keys(), width);
    for (const std::string_view line : split(help, '\n'))
      EXPECT_LE(cells(line), static_cast<std::size_t>(width)) << line;
  }
}

}  // namespace
}  // namespace headroom::config
