// The keys of a command: their types, defaults and effects.
//
//   const Schema& keys = training_keys();
//   const Key& key = keys.key("training.batch_size");  // key.name == "batch_size"
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::config {

class Resolved;

enum class Kind {
  text,
  whole,           // a whole number
  number,          // "0.1", "1e-4"
  flag,            // true, false, yes, no, on, off
  share,           // "0.9", "90%"
  share_or_bytes,  // "0.7", "70%", "20GiB"
  choice,          // one of the key's choices
  words,           // "q,v", or a list
  variants         // models by memory (model_variants.h)
};

struct Key {
  std::string name;  // "batch_size", "model.lora_r"
  Kind kind = Kind::text;
  // As a person would type it. std::nullopt: the key has no value until it is given one.
  std::optional<std::string> usual = {};
  std::string effect = {};  // a sentence for --help-keys
  // Words; one that ends in ":N" takes a whole number of at least `least` in place of N.
  std::vector<std::string> choices = {};
  // The range of a number.
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  // A default that depends on other keys, in place of `usual`, and words for it ("5e-4 for adamw").
  std::function<std::optional<std::string>(const Resolved&)> computed = {};
  std::string computed_words = {};
  std::vector<std::string> elsewhere = {};  // its names in other programs, which a refusal knows
  std::string group = {};                   // the heading under which --help-keys lists it

  // Whether it may be without a value: `weights=` then takes an earlier value away.
  [[nodiscard]] bool is_optional() const { return !usual; }
};

class Schema {
 public:
  // `sections`: what may stand in front of a key without changing its meaning, such as "training".
  // `groups`: keys that are also the beginning of other keys, such as "model" of "model.lora_r";
  // "model.name" is another spelling of such a key.
  Schema(std::vector<Key> keys, std::vector<std::string> sections, std::vector<std::string> groups);

  [[nodiscard]] const std::vector<Key>& keys() const { return keys_; }

  // By any of its spellings. Throws UsageError for an unknown name, with the nearest known one.
  [[nodiscard]] const Key& key(std::string_view name) const;

  // The key that a wrong name is meant for, by other programs' names too. "" if no key is near.
  [[nodiscard]] std::string suggestion(std::string_view name) const;

  [[nodiscard]] bool is_key(std::string_view name) const;

  // Whether a file may hold a map under this name: "training", "model", "training.model".
  [[nodiscard]] bool is_section(std::string_view name) const;

 private:
  [[nodiscard]] std::string_view without_section(std::string_view name) const;
  [[nodiscard]] const Key* find(std::string_view name) const;

  std::vector<Key> keys_;
  std::vector<std::string> sections_, groups_;
};

}  // namespace headroom::config
