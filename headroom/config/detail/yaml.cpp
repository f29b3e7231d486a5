#include "headroom/config/detail/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::config::detail {
namespace {

std::string place(const std::string& source, const YAML::Mark& mark) {
  return mark.is_null() ? source : source + ":" + std::to_string(mark.line + 1);
}

// Lists of maps of texts are the deepest values.
constexpr int kDeepest = 2;
// Longer lists are not a configuration. Aliases (*) make it easy to write very long ones.
constexpr std::size_t kLongest = 1000;

Json json_of_node(const YAML::Node& node, int depth) {
  if (node.IsNull() || !node.IsDefined()) return {};
  if (node.IsScalar()) return node.Scalar();
  const bool fits = depth < kDeepest && node.size() <= kLongest;
  if (!fits) throw UsageError(expectation("config", "one value", "a long or deep list or map"));
  Json json = node.IsMap() ? Json::object() : Json::array();
  for (const auto& item : node) {
    if (node.IsMap())
      json[item.first.IsScalar() ? item.first.Scalar() : ""] = json_of_node(item.second, depth + 1);
    else
      json.push_back(json_of_node(item, depth + 1));
  }
  return json;
}

class SettingsReader {
 public:
  SettingsReader(const Schema& schema, const std::string& source, const OnSetting& on_setting)
      : schema_(schema), source_(source), on_setting_(on_setting) {}

  void run(const YAML::Node& document) const {
    if (document.IsNull()) return;
    if (!document.IsMap()) refuse(document, "a map of keys", "another document", "batch_size: 32");
    read_map(document, "");
  }

 private:
  [[noreturn]] void refuse(const YAML::Node& node, std::string_view expected,
                           std::string_view received, std::string_view to_try) const {
    throw InputError(expectation(place(source_, node.Mark()), expected, received, to_try));
  }

  void read_map(const YAML::Node& map, const std::string& section) const {
    for (const auto& item : map) {
      const YAML::Node& name = item.first;
      if (!name.IsScalar()) refuse(name, "the name of a key", "a list or a map", "batch_size: 32");
      read_key(name, item.second, section.empty() ? name.Scalar() : section + "." + name.Scalar());
    }
  }

  void read_key(const YAML::Node& name, const YAML::Node& value, const std::string& key) const {
    const bool is_section = schema_.is_section(key);
    if (is_section && value.IsMap()) return read_map(value, key);
    if (is_section && value.IsNull()) return;
    const std::string where = place(source_, name.Mark());
    try {
      if (is_section && !schema_.is_key(key))
        refuse(name, "keys below " + key, value.IsScalar() ? value.Scalar() : "a list",
               key + ": {batch_size: 32}");
      (void)schema_.key(key);  // an unknown key is the first thing to say
      on_setting_(key, json_of_node(value, 0), where);
    } catch (const UsageError& error) {
      throw InputError(where, error.complaint().words);
    }
  }

  const Schema& schema_;
  const std::string& source_;
  const OnSetting& on_setting_;
};

// Without yaml-cpp's own words for the two usual slips, "illegal map value" and "end of map not
// found".
[[noreturn]] void refuse_yaml(std::string_view text, const std::string& source,
                              const YAML::Exception& error) {
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin != std::string_view::npos && line[begin] == '\t')
      throw InputError(expectation(source + ":" + std::to_string(number),
                                   "blanks at the beginning of a line", "a tab", "two blanks"));
  }
  const bool is_indentation = error.msg.find("map") != std::string::npos;
  throw InputError(expectation(
      place(source, error.mark), "YAML", without_controls(error.msg),
      is_indentation ? "the same indentation for all keys of a map, and a blank after each colon"
                     : ""));
}

// Ignores the content of a document; notes only where it begins.
class DocumentStart : public YAML::EventHandler {
 public:
  YAML::Mark mark;

  void OnDocumentStart(const YAML::Mark& start) override { mark = start; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::Load reads the first document and ignores the rest, in which it also counts what it cannot
// read (", lr: 1"). YAML::LoadAll reads such a rest as one empty document after another, without
// end.
void check_single(const std::string& text, const std::string& source) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  const bool several = parser.HandleNextDocument(start) && parser.HandleNextDocument(start);
  if (!several) return;
  throw InputError(expectation(place(source, start.mark), "one YAML document",
                               "the start of another", "a file with one"));
}

}  // namespace

void read_yaml(const Schema& schema, std::string_view text, const std::string& source,
               const OnSetting& on_setting) {
  YAML::Node document;
  try {
    check_single(std::string(text), source);
    document = YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    refuse_yaml(text, source, error);
  }
  SettingsReader(schema, source, on_setting).run(document);
}

Json read_value(std::string_view text) {
  try {
    check_single(std::string(text), "the value");
    return json_of_node(YAML::Load(std::string(text)), 0);
  } catch (const InputError& error) {
    throw UsageError("config", error.complaint().words);
  } catch (const YAML::Exception&) {
    const std::string shown = without_controls(std::string(beginning(text, 200)));
    throw UsageError(expectation("config", "a list", shown, "[q, v]"));
  }
}

}  // namespace headroom::config::detail
