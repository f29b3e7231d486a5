// What one `--map` says: where a value stands, and which of the two quantities it is.
//
//   Mapping mapping = parse_mapping("config.yaml:training.batch_size=batch");
#pragma once

#include <string>

#include "headroom/edit/knobs.h"

namespace headroom::edit::detail {

enum class Form { flag, key, file, variable };

struct Mapping {
  Form form = Form::flag;
  std::string text;  // the whole map, for messages
  std::string name;  // "--batch-size", "training.batch_size", the variable's name
  std::string plus;  // of a key: "", "+" or "++", how it is added
  std::filesystem::path file;
  Quantity quantity = Quantity::batch;

  // How messages name the place: "--batch-size", "config.yaml:training.batch_size".
  [[nodiscard]] std::string place() const;
};

// Throws UsageError, which lists the forms and names the word that was perhaps meant.
[[nodiscard]] Mapping parse_mapping(const std::string& text);

}  // namespace headroom::edit::detail
