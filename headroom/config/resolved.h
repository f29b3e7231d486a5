// The configuration of a run: each key's value, and where it comes from.
//
//   const Resolved config = resolve(training_keys(), {.preset = "robust", .file = "my.yaml",
//                                                     .overrides = {"batch_size=8"}});
//   config.whole("batch_size");   // 8
//   config.origin("batch_size");  // "command line"
//   config.origin("allow_cpu");   // "preset robust"
//
// Later sources win: defaults, then the preset, the base, the file, the command line. Within one
// source the last line or word wins.
//
// Copies are independent; the schema must outlive them. Threads may read one at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/amount.h"
#include "headroom/base/json.h"
#include "headroom/config/model_variants.h"
#include "headroom/config/schema.h"

namespace headroom::config {

struct Sources {
  std::string preset = "default";
  std::optional<std::filesystem::path> base = {};  // YAML, below `file`: of a run that goes on
  std::optional<std::filesystem::path> file = {};  // YAML
  std::vector<std::string> overrides = {};         // "key=value"
};

// A key with its final value in words; std::nullopt if it has none.
struct Entry {
  std::string key;
  std::optional<std::string> value;
  std::string origin;
};

class Resolved {
 public:
  explicit Resolved(const Schema& schema) : schema_(&schema) {}

  // A getter throws InternalError for a key of another kind, and all but the optional ones for a
  // key without a value: both are mistakes in the program that asks.
  [[nodiscard]] std::string text(std::string_view key) const;  // also of a choice
  [[nodiscard]] std::int64_t whole(std::string_view key) const;
  [[nodiscard]] double number(std::string_view key) const;  // also of a whole number or a share
  [[nodiscard]] bool yes(std::string_view key) const;
  [[nodiscard]] ShareOrBytes share_or_bytes(std::string_view key) const;  // a share is at most 1
  [[nodiscard]] std::vector<std::string> words(std::string_view key) const;
  [[nodiscard]] std::vector<ModelVariant> model_variants(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> optional_text(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> optional_whole(std::string_view key) const;
  [[nodiscard]] std::optional<double> optional_number(std::string_view key) const;
  // The number of a choice that has one: 1024 of "chunked:1024", 2 of "cuda:2".
  [[nodiscard]] std::optional<std::int64_t> number_in(std::string_view key) const;

  // "default", "preset robust", "my.yaml:12" or "command line".
  [[nodiscard]] std::string origin(std::string_view key) const;
  // Whether a source gives it a value, even that of the default.
  [[nodiscard]] bool is_given(std::string_view key) const;
  // Every key, in the schema's order.
  [[nodiscard]] std::vector<Entry> entries() const;

  // For --config: reading it gives the same values, and is_given() for the same keys. Defaults are
  // comments.
  [[nodiscard]] std::string to_yaml() const;
  // {"batch_size": 8, "fp16": false, "seq": null, ...}; sizes as counts of bytes.
  [[nodiscard]] Json to_json() const;

  // The keys that a source gives, with their origins, for a process that goes on with them.
  [[nodiscard]] Json given() const;
  [[nodiscard]] static Resolved restored(const Schema& schema, const Json& given);

  // Replaces a value. `given` is a text, null, a list of texts, or a list of maps of texts. Throws
  // UsageError for an unknown key or a wrong value.
  void set(std::string_view key, const Json& given, const std::string& origin);

 private:
  struct Given {
    std::string text, origin;
  };
  [[nodiscard]] const Key& asked(std::string_view key, std::initializer_list<Kind> kinds) const;
  [[nodiscard]] std::optional<std::string> value(const Key& key) const;
  [[nodiscard]] std::string present(const Key& key) const;

  const Schema* schema_;
  std::map<std::string, Given> given_;  // by the key's name
};

// Throws UsageError for an unknown preset, key or value on the command line, and InputError with
// the file's line for one in the file. An unknown key's error names the nearest known one.
[[nodiscard]] Resolved resolve(const Schema& schema, const Sources& sources);

}  // namespace headroom::config
