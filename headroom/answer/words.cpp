#include "headroom/answer/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"

namespace headroom::answer {
namespace {

constexpr std::size_t kShownNames = 4;

// Keys that another part of the line shows, or that appear only with another setting.
bool is_said_elsewhere(const std::string& key) {
  static constexpr std::array<std::string_view, 10> kElsewhere{
      "task",  "batch", "seq",       "target_seq",     "image",
      "dtype", "mode",  "optimizer", "optimizer_impl", "attention"};
  return std::find(kElsewhere.begin(), kElsewhere.end(), key) != kElsewhere.end();
}

std::string value_words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return to_line(value);
  std::vector<std::string> words;
  for (const Json& word : value) words.push_back(word.get<std::string>());
  return join(words, ",");
}

std::string rows_words(const model::Settings& settings) {
  std::string text = fmt::format("batch {}", settings.batch);
  if (settings.seq) text += fmt::format(" x {} tokens", *settings.seq);
  if (settings.target_seq) text += fmt::format(" to {}", *settings.target_seq);
  if (settings.image) text += fmt::format(" of {} pixels", *settings.image);
  return text;
}

// One assumption that was made in several places, or about several operators.
struct AssumedAlike {
  std::string what, most_often;  // "the places are spread evenly", "topk in model.py:31"
  std::uint64_t count = 0, most = 0;
};

}  // namespace

Verdict verdict_of(const OnCard& on) {
  if (on.until_it_failed)
    return {"failed", fmt::format(", having used at most {}", to_string(on.peak.process))};
  if (on.fits) return {"fits", fmt::format(", {} to spare", to_string(on.spare)), true};
  if (on.spare.count >= 0) return {"does not fit", ": no free block is large enough"};
  return {"does not fit", fmt::format(": {} too much", to_string(Bytes{0} - on.spare))};
}

std::string card_words(const gpu::SimulatedCard& card) {
  const std::string text = fmt::format("{}, {}", card.name, to_string(card.total));
  if (gpu::usable(card) == card.total) return text;
  return fmt::format("{} ({} usable)", text, to_string(gpu::usable(card)));
}

std::string parameters_words(const Answer& answer) {
  const long long all = answer.parameters, trained = answer.trainable_parameters;
  const std::string text = rounded(all) + " parameters";
  if (trained == 0 || trained >= all) return text;
  const double percent = 100.0 * static_cast<double>(trained) / static_cast<double>(all);
  return fmt::format("{}, {} of them trained ({} %)", text, rounded(trained),
                     percent < 0.01 ? "< 0.01" : fmt::format("{:.2g}", percent));
}

std::string settings_words(const model::Settings& settings) {
  static const Json usual = model::to_json(model::Settings{});
  std::vector<std::string> parts;
  if (settings.task) parts.emplace_back(to_string(*settings.task));
  parts.emplace_back(to_string(settings.mode));
  parts.push_back(rows_words(settings));
  parts.emplace_back(to_string(settings.dtype));
  if (settings.mode == model::Mode::train)
    parts.push_back(fmt::format("{} {}", to_string(settings.form), to_string(settings.optimizer)));
  if (settings.task != model::Task::image_classification)
    parts.emplace_back(to_string(settings.attention));
  const Json all = model::to_json(settings);
  for (const auto& [key, value] : all.items()) {
    if (is_said_elsewhere(key) || value == usual.value(key, Json())) continue;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    parts.push_back(value == Json(true) ? name : name + " " + value_words(value));
  }
  return join(parts, ", ");
}

std::string listed(const std::vector<std::string>& all) {
  const std::size_t shown = std::min(kShownNames, all.size());
  std::string text = join({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown)}, ", ");
  if (shown < all.size()) text += fmt::format(" and {} more", all.size() - shown);
  return text;
}

// "assumed, as values are unknown: the places are spread evenly (96 times, most often topk in
// model.py:31)"
std::string assumptions_words(const std::vector<trace::Assumption>& all) {
  std::vector<AssumedAlike> kinds;
  for (const trace::Assumption& one : all) {
    const auto colon = one.what.find(": ");
    const std::string what = colon == std::string::npos ? one.what : one.what.substr(colon + 2);
    auto alike = std::find_if(kinds.begin(), kinds.end(),
                              [&](const AssumedAlike& kind) { return kind.what == what; });
    if (alike == kinds.end()) alike = kinds.insert(kinds.end(), {.what = what, .most_often = {}});
    alike->count += one.count;
    if (one.count <= alike->most) continue;
    alike->most = one.count;
    alike->most_often = one.what.substr(0, colon == std::string::npos ? 0 : colon) +
                        (one.where.empty() ? "" : " in " + one.where);
  }
  std::vector<std::string> shown;
  for (const AssumedAlike& kind : kinds)
    shown.push_back(fmt::format("{} ({}, {}{})", kind.what,
                                counted(static_cast<long long>(kind.count), "time"),
                                kind.most == kind.count ? "" : "most often ", kind.most_often));
  return "assumed, as values are unknown: " + listed(shown);
}

std::vector<std::string> sentences(const Answer& answer) {
  std::vector<std::string> all;
  if (const OnCard* on = answer.tightest()) {
    const Verdict verdict = verdict_of(*on);
    all.push_back(fmt::format("{}: {}{}", card_words(on->card), verdict.word, verdict.rest));
    if (answer.cards.size() > 1)
      all.back() += fmt::format(", the least room of {} cards", answer.cards.size());
  }
  if (const auto& refusal = answer.report.out_of_memory)
    all.push_back(fmt::format(
        "a request of {} did not fit: {} of {} were free; the picture shows a run without "
        "a limit",
        to_string(refusal->requested), to_string(refusal->free), to_string(refusal->capacity)));
  for (const plan::Saving& change : answer.advice)
    all.push_back(fmt::format("{} needs {}{}", change.option, to_string(change.process),
                              change.fits ? " and fits" : ""));
  all.insert(all.end(), answer.notes.begin(), answer.notes.end());
  return all;
}

}  // namespace headroom::answer
