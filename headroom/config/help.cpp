#include "headroom/config/help.h"

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"
#include "headroom/config/presets.h"
#include "headroom/config/schema.h"

namespace headroom::config {
namespace {

constexpr std::size_t kEffects = 34;  // the column where they begin

// The placeholder for a value that has no default.
std::string placeholder(Kind kind) {
  switch (kind) {
    case Kind::whole:
      return "N";
    case Kind::number:
    case Kind::share:
      return "X";
    case Kind::flag:
      return "true|false";
    case Kind::words:
      return "A,B";
    case Kind::text:
    case Kind::choice:
    case Kind::share_or_bytes:
    case Kind::variants:
      break;
  }
  return "...";
}

std::string help_words(const Key& key) {
  std::string words = key.effect;
  if (!key.choices.empty()) words += " One of " + join(key.choices, ", ") + ".";
  if (!key.computed_words.empty()) words += " Default: " + key.computed_words + ".";
  return words;
}

std::string help_of_key(const Key& key, int width) {
  const std::string name = "  " + key.name + "=" + key.usual.value_or(placeholder(key.kind));
  const std::string indent(kEffects, ' ');
  if (cells(name) + 2 > kEffects)
    return name + "\n" + wrapped(help_words(key), indent, indent, width);
  const std::string first = name + std::string(kEffects - cells(name), ' ');
  return wrapped(help_words(key), first, indent, width);
}

}  // namespace

std::string help_of(const Schema& schema, int width) {
  std::string out, group;
  for (const Key& key : schema.keys()) {
    if (key.group != group) out += (group.empty() ? "" : "\n") + key.group + "\n";
    group = key.group;
    out += help_of_key(key, width);
  }
  const auto paragraph = [&](const std::string& text) {
    out += "\n" + wrapped(text, "", "", width);
  };
  paragraph(
      "Each key also works with `training.` in front. A value after = here is the default. "
      "`key=` takes back the value of a key that has no default.");
  paragraph("The command line overrides --config FILE, which overrides --config-name (" +
            join(preset_names(), ", ") +
            "). If one of them gives a key twice, the last value counts.");
  paragraph(
      "A file is YAML with these keys, at the top or below `training:`. The keys that begin with "
      "`model.` may stand below `model:`, and the model itself is `name` there.");
  return out;
}

}  // namespace headroom::config
