// What a model is made of, as its config.json on the Hugging Face hub says it: the file's keys, and
// transformers' default for every key that the file leaves out.
//
//   const ModelConfig config = read_config("Llama-3.1-8B/config.json");   // or the folder
//   config.type();                       // "llama"
//   config.count("num_hidden_layers");   // 32
//   config.defaulted();                  // "attention_bias = false": what was not in the file
//
// Keys have the names of the model type's own configuration class; a file may use the general ones
// that transformers takes as well (`hidden_size` for GPT-2's `n_embd`). Defaults are those of
// transformers 4.57.6 (data/model_types.json).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/json.h"

namespace headroom::formula {

class ModelConfig {
 public:
  // `source` names it in errors. Throws InputError: no `model_type`, or one that Headroom does not
  // build (the nearest one is named).
  ModelConfig(const Json& file, std::string source);

  [[nodiscard]] const std::string& type() const { return type_; }      // "llama"
  [[nodiscard]] const std::string& source() const { return source_; }  // "config.json"

  // Each throws InputError naming file and key when the value is of another kind, and InternalError
  // for a key that this model type does not have.
  [[nodiscard]] long long count(std::string_view key) const;  // 0 or more
  [[nodiscard]] long long at_least_1(std::string_view key) const;
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key) const;
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::vector<long long> counts(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;
  // The value of a key that may be null, as many are.
  [[nodiscard]] bool has(std::string_view key) const;  // this model type knows the key
  [[nodiscard]] bool is_null(std::string_view key) const;
  [[nodiscard]] std::optional<long long> optional_count(std::string_view key) const;
  [[nodiscard]] const Json& at(std::string_view key) const;

  [[nodiscard]] long long labels() const { return labels_; }  // `id2label`, `num_labels`, else 2
  [[nodiscard]] const std::vector<std::string>& architectures() const { return architectures_; }
  // "attention_bias = false", for each key that the file leaves to its default.
  [[nodiscard]] const std::vector<std::string>& defaulted() const { return defaulted_; }

  // An InputError that names the file, a key and its value, and what would be right.
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  std::string type_, source_;
  std::shared_ptr<const Json> values_;  // every key that this type has
  std::vector<std::string> defaulted_;
  std::vector<std::string> architectures_;
  long long labels_ = 2;
};

// A file, or a folder with a config.json. Throws InputError.
[[nodiscard]] ModelConfig read_config(const std::filesystem::path& path);

// "bert", "convnext", ...
[[nodiscard]] std::vector<std::string> model_types();

}  // namespace headroom::formula
