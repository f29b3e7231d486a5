#include "headroom/model/run_settings.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/model/detail/refuse.h"

namespace headroom::model {
namespace {

using detail::refuse;

// ---- Numbers ----

// The limit for counts, far above any real run.
constexpr std::int64_t kMostCount = std::int64_t{1} << 24;

struct NotOfThisKind {};

template <typename Value>
Value value_of(const Json& json) {
  return json.get<Value>();
}
// Json itself would silently convert fractions and numbers out of range.
template <>
std::int64_t value_of(const Json& json) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!json.is_number_integer()) throw NotOfThisKind();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > kMost) throw NotOfThisKind();
  return json.get<std::int64_t>();
}
template <>
int value_of(const Json& json) {
  const auto number = value_of<std::int64_t>(json);
  if (number != static_cast<int>(number)) throw NotOfThisKind();
  return static_cast<int>(number);
}

// ---- Words with a number ----

std::optional<long long> number_after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return {};
  const auto number = to_integer(text.substr(prefix.size()));
  return number && *number >= 1 && *number <= kMostCount ? number : std::nullopt;
}

std::string checkpointing_text(const Settings& settings) {
  if (settings.checkpoint_every == 0) return "none";
  if (settings.checkpoint_every == 1) return "full";
  return "every:" + std::to_string(settings.checkpoint_every);
}

void set_checkpointing(Settings& settings, const std::string& text) {
  if (text == "none")
    settings.checkpoint_every = 0;
  else if (text == "full")
    settings.checkpoint_every = 1;
  else if (const auto layers = number_after(text, "every:"))
    settings.checkpoint_every = *layers;
  else
    throw UsageError(expectation("settings", "checkpointing: none, full or every:K", text, "full"));
}

std::string loss_text(const Settings& settings) {
  if (settings.loss == LossForm::full) return "full";
  if (settings.loss == LossForm::fused) return "fused";
  return "chunked:" + std::to_string(settings.loss_chunk);
}

void set_loss(Settings& settings, const std::string& text) {
  settings.loss_chunk = 0;
  if (text == "full")
    settings.loss = LossForm::full;
  else if (text == "fused")
    settings.loss = LossForm::fused;
  else if (const auto tokens = number_after(text, "chunked:"))
    std::tie(settings.loss, settings.loss_chunk) = std::pair(LossForm::chunked, *tokens);
  else
    throw UsageError(
        expectation("settings", "a loss: full, fused or chunked:N", text, "chunked:1024"));
}

std::string zero_grad_text(const Settings& settings) {
  return settings.zero_gradients ? "zero" : "none";
}

void set_zero_grad(Settings& settings, const std::string& text) {
  if (text != "zero" && text != "none") refuse("zero_grad", text, {"none", "zero"});
  settings.zero_gradients = text == "zero";
}

struct OffloadPart {
  const char* name;
  bool Offload::*flag;
};
constexpr std::array<OffloadPart, 4> kOffloadParts{{{"optimizer", &Offload::optimizer},
                                                    {"gradients", &Offload::gradients},
                                                    {"parameters", &Offload::parameters},
                                                    {"activations", &Offload::activations}}};

Json offload_list(const Offload& offload) {
  Json list = Json::array();
  for (const OffloadPart& part : kOffloadParts)
    if (offload.*part.flag) list.push_back(part.name);
  return list;
}

void set_offload(Offload& offload, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const OffloadPart& part : kOffloadParts) known.emplace_back(part.name);
  for (const OffloadPart& part : kOffloadParts) offload.*part.flag = false;
  for (const std::string& name : names) {
    bool found = false;
    for (const OffloadPart& part : kOffloadParts)
      if (name == part.name) found = offload.*part.flag = true;
    if (!found) refuse("what to offload", name, known);
  }
}

// ---- Keys ----

struct Key {
  const char* name;
  std::function<Json(const Settings&)> get;
  std::function<void(Settings&, const Json&)> set;
};

template <typename Value>
Key plain(const char* name, Value Settings::*member) {
  return {
      name, [member](const Settings& settings) { return Json(settings.*member); },
      [member](Settings& settings, const Json& json) { settings.*member = value_of<Value>(json); }};
}

template <typename Value>
Key maybe(const char* name, std::optional<Value> Settings::*member) {
  return {name,
          [member](const Settings& settings) {
            const std::optional<Value>& value = settings.*member;
            return value ? Json(*value) : Json();
          },
          [member](Settings& settings, const Json& json) {
            settings.*member = json.is_null() ? std::nullopt : std::optional(value_of<Value>(json));
          }};
}

template <typename Choice>
Key word(const char* name, Choice Settings::*member) {
  return {
      name,
      [member](const Settings& settings) { return Json(std::string(to_string(settings.*member))); },
      [member](Settings& settings, const Json& json) {
        settings.*member = choice<Choice>(json.get<std::string>());
      }};
}

Key text(const char* name, std::string (*get)(const Settings&),
         void (*set)(Settings&, const std::string&)) {
  return {name, [get](const Settings& settings) { return Json(get(settings)); },
          [set](Settings& settings, const Json& json) { set(settings, json.get<std::string>()); }};
}

Key task_key() {
  return {"task",
          [](const Settings& settings) {
            return settings.task ? Json(std::string(to_string(*settings.task))) : Json();
          },
          [](Settings& settings, const Json& json) {
            settings.task.reset();
            if (!json.is_null()) settings.task = choice<Task>(json.get<std::string>());
          }};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = {
      task_key(),
      plain("batch", &Settings::batch),
      maybe("seq", &Settings::seq),
      maybe("target_seq", &Settings::target_seq),
      maybe("image", &Settings::image),
      word("dtype", &Settings::dtype),
      word("autocast", &Settings::autocast),
      word("optimizer", &Settings::optimizer),
      word("optimizer_impl", &Settings::form),
      plain("optimizer_in_backward", &Settings::optimizer_in_backward),
      word("rounding", &Settings::rounding),
      word("attention", &Settings::attention),
      word("transformers", &Settings::transformers),
      word("mask", &Settings::mask),
      text("checkpointing", checkpointing_text, set_checkpointing),
      word("checkpointing_kind", &Settings::checkpointing_kind),
      plain("accumulation", &Settings::accumulation),
      maybe("clip", &Settings::clip),
      text("zero_grad", zero_grad_text, set_zero_grad),
      plain("lora_rank", &Settings::lora_rank),
      plain("lora_targets", &Settings::lora_targets),
      word("lora_dtype", &Settings::lora_dtype),
      plain("freeze_backbone", &Settings::freeze_backbone),
      word("quantize", &Settings::quantize),
      text("loss", loss_text, set_loss),
      plain("techniques", &Settings::techniques),
      plain("use_cache", &Settings::use_cache),
      plain("hold_outputs", &Settings::hold_outputs),
      plain("steps", &Settings::steps),
      plain("world", &Settings::world),
      plain("zero", &Settings::zero),
      {"offload", [](const Settings& settings) { return offload_list(settings.offload); },
       [](Settings& settings, const Json& json) {
         set_offload(settings.offload, json.get<std::vector<std::string>>());
       }},
      {"offload_to",
       [](const Settings& settings) { return Json(std::string(to_string(settings.offload.to))); },
       [](Settings& settings, const Json& json) {
         settings.offload.to = choice<OffloadTo>(json.get<std::string>());
       }},
      word("mode", &Settings::mode),
      word("policy", &Settings::policy)};
  return all;
}

// ---- Ranges ----

void check_range(const char* name, double value, double least, const char* expected) {
  if (!(value >= least))
    throw UsageError(expectation("settings", std::string(expected) + " for `" + name + "`",
                                 to_line(Json(value))));
}

void check_count(const char* name, std::optional<std::int64_t> value, std::int64_t least = 1,
                 std::int64_t most = kMostCount) {
  if (!value || (*value >= least && *value <= most)) return;
  const std::string bound =
      *value < least ? "at least " + std::to_string(least) : "at most " + std::to_string(most);
  throw UsageError(expectation("settings", "a whole number of " + bound + " for `" + name + "`",
                               std::to_string(*value)));
}

// Beyond this the bytes of all layers together would overflow 64 bits.
void check_size(const Settings& settings) {
  constexpr double kMostPairs = 0x1p42, kMostPixelPairs = 0x1p56;
  const auto rows = static_cast<double>(settings.batch);
  const auto length =
      static_cast<double>(std::max(settings.seq.value_or(1), settings.target_seq.value_or(1)));
  const auto refuse_size = [&](const char* expected, const char* of, double each) {
    throw UsageError(expectation(
        "settings", expected,
        std::to_string(settings.batch) + of + std::to_string(static_cast<std::int64_t>(each))));
  };
  if (rows * length * std::max(length, 512.0) > kMostPairs)
    refuse_size("a smaller batch x length", " rows of ", length);
  const auto side = static_cast<double>(settings.image.value_or(1)), pixels = side * side;
  if (rows * pixels * std::max(pixels, 256.0 * 256.0) > kMostPixelPairs)
    refuse_size("a smaller batch x image", " images with a side of ", side);
}

void check_ranges(const Settings& settings) {
  check_count("batch", settings.batch);
  check_count("seq", settings.seq);
  check_count("target_seq", settings.target_seq);
  check_count("image", settings.image);
  check_count("accumulation", settings.accumulation);
  check_count("steps", settings.steps);
  check_count("world", settings.world);
  check_count("lora_rank", settings.lora_rank, 0);
  check_count("zero", settings.zero, 0, 3);
  check_size(settings);
  if (settings.clip) check_range("clip", *settings.clip, 0, "a norm of 0 or more");
  if (!settings.lora_targets.empty() && settings.lora_rank == 0)
    throw UsageError(expectation("settings", "`lora_rank` beside `lora_targets`", "none", "8"));
}

}  // namespace

bool can_round(Optimizer optimizer) {
  return optimizer == Optimizer::adamw || optimizer == Optimizer::adamw8bit ||
         optimizer == Optimizer::adamw4bit || optimizer == Optimizer::sgd ||
         optimizer == Optimizer::sgd_momentum;
}

Json to_json(const Settings& settings) {
  Json json;
  for (const Key& key : keys()) json[key.name] = key.get(settings);
  if (settings.techniques.empty()) json.erase("techniques");  // most trainings have none
  return json;
}

Settings settings_from_json(const Json& json) {
  Settings settings;
  for (const auto& [name, value] : json.items()) {
    const Key* known = nullptr;
    std::vector<std::string> names;
    for (const Key& key : keys()) {
      names.emplace_back(key.name);
      if (name == key.name) known = &key;
    }
    if (known == nullptr) refuse("a setting", name, names);
    const auto refuse_value = [&key = name, &given = value] {
      throw UsageError(
          expectation("settings", "a value of the right kind for `" + key + "`", to_line(given)));
    };
    try {
      known->set(settings, value);
    } catch (const Json::exception&) {
      refuse_value();
    } catch (const NotOfThisKind&) {
      refuse_value();
    }
  }
  check_ranges(settings);
  return settings;
}

}  // namespace headroom::model
