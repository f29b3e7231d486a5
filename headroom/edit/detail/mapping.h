// One `--map`: the place of a value, and its quantity.
//
//   Mapping mapping = parse_mapping("config.yaml:training.batch_size=batch");
#pragma once

#include <filesystem>
#include <string>

#include "headroom/edit/quantity.h"

namespace headroom::edit::detail {

enum class Form { flag, key, file, variable };

struct Mapping {
  Form form = Form::flag;
  std::string text;  // the whole map, for messages
  std::string name;  // "--batch-size", "training.batch_size", the variable's name
  std::string plus;  // prefix of a key: "", "+" or "++"
  std::filesystem::path file;
  Quantity quantity = Quantity::batch;

  // The place's name in messages: "--batch-size", "config.yaml:training.batch_size".
  [[nodiscard]] std::string place() const;
};

// Throws UsageError with the valid forms and the nearest word.
[[nodiscard]] Mapping parse_mapping(const std::string& text);

}  // namespace headroom::edit::detail
