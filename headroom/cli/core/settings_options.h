// The settings of a run (model/run_settings.h) as command-line options: --batch, --dtype, ...
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/model/run_settings.h"

namespace headroom::cli {

class SettingsOptions {
 public:
  // `only`: the options with these names, or all where there is none; `helps`: by name, in place of
  // their own.
  void add_to(CLI::App* command, const std::vector<std::string>& only = {},
              const std::map<std::string, std::string>& helps = {});

  // The given options over the defaults. Throws UsageError that suggests the nearest word.
  [[nodiscard]] model::Settings settings() const;

  // The given options, by name.
  [[nodiscard]] std::vector<std::string> given() const;

  // "--mask", "ones none": the values of an option, for completion.
  [[nodiscard]] static std::vector<std::pair<std::string, std::string>> words();

 private:
  [[nodiscard]] bool flag(const std::string& key) const;
  [[nodiscard]] std::optional<std::string> text(const std::string& key) const;

  std::map<std::string, std::optional<std::string>> texts_;  // by the settings' names
  std::map<std::string, bool> flags_;
};

}  // namespace headroom::cli
