// A model's configuration, as its config.json on the Hugging Face hub gives it: the file's keys,
// and transformers' default for each key that the file omits.
//
//   const ModelConfig config = read_config("Llama-3.1-8B/config.json");   // or the folder
//   config.type();                       // "llama"
//   config.count("num_hidden_layers");   // 32
//   config.defaulted();                  // "attention_bias = false": keys that the file omits
//
// Keys have the names of the model type's own configuration class; a file may also use
// transformers' general names (`hidden_size` for GPT-2's `n_embd`). Defaults are those of
// transformers 4.57.6 (data/model_types.json).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/json.h"

namespace headroom::model {

class ModelConfig {
 public:
  // `source` names the file in errors. Throws InputError if `model_type` is missing or is one that
  // Headroom does not build (the error names the nearest).
  ModelConfig(const Json& file, std::string source);

  [[nodiscard]] const std::string& type() const { return type_; }      // "llama"
  [[nodiscard]] const std::string& source() const { return source_; }  // "config.json"

  // Each throws InputError naming file and key if the value has another type or is out of range,
  // and InternalError if this model type does not have the key.
  [[nodiscard]] long long count(std::string_view key) const;  // 0 or more
  [[nodiscard]] long long at_least_1(std::string_view key) const;
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key) const;
  [[nodiscard]] std::string text(std::string_view key) const;
  [[nodiscard]] std::vector<long long> counts(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;
  // For keys whose value may be null.
  [[nodiscard]] bool has(std::string_view key) const;  // this model type knows the key
  [[nodiscard]] bool is_null(std::string_view key) const;
  [[nodiscard]] std::optional<long long> optional_count(std::string_view key) const;
  [[nodiscard]] const Json& at(std::string_view key) const;

  [[nodiscard]] long long labels() const { return labels_; }  // `id2label`, `num_labels`, else 2
  // The same model with a classifier's head of this size.
  [[nodiscard]] ModelConfig with_labels(long long labels) const;
  [[nodiscard]] const std::vector<std::string>& architectures() const { return architectures_; }
  // The file's keys, as it gives them.
  [[nodiscard]] const Json& file() const { return *file_; }
  // "attention_bias = false": one entry for each key that the file omits.
  [[nodiscard]] const std::vector<std::string>& defaulted() const { return defaulted_; }

  // Throws InputError naming the file, the key and its value, and the expected value.
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  std::string type_, source_;
  std::shared_ptr<const Json> file_;
  std::shared_ptr<const Json> values_;  // every key that this type has
  std::vector<std::string> defaulted_;
  std::vector<std::string> architectures_;
  long long labels_ = 2;
};

// A file, or a folder with a config.json. Throws InputError.
[[nodiscard]] ModelConfig read_config(const std::filesystem::path& path);

// "bert", "convnext", ...
[[nodiscard]] std::vector<std::string> model_types();

}  // namespace headroom::model
