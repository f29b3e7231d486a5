#include "headroom/oom/detail/figures.h"

#include "headroom/base/text.h"
#include "headroom/oom/detail/amount_in_log.h"
#include "headroom/oom/detail/pattern.h"
#include "headroom/oom/detail/rules.h"

namespace headroom::oom::detail {
namespace {

// "2.12G (2282521344 bytes)": the number in brackets is exact.
std::optional<Bytes> exact_behind(std::string_view text, std::size_t at) {
  if (!text.substr(at).starts_with(" (")) return {};
  const auto exact = amount_at(text, at + 2);
  if (!exact || !text.substr(0, exact->end).ends_with("bytes")) return {};
  return exact->bytes;
}

std::optional<Bytes> amount_behind(std::string_view text, std::size_t at, bool of_bytes) {
  while (at < text.size() && std::string_view(" :([=").find(text[at]) != std::string_view::npos)
    ++at;
  const auto amount = amount_at(text, at);
  if (!amount || (!amount->has_unit && !of_bytes)) return {};
  return exact_behind(text, amount->end).value_or(amount->bytes);
}

std::optional<Bytes> amount_after(std::string_view text, std::string_view phrase, bool of_bytes) {
  for (auto found = find(phrase, text); found;
       found = find(phrase, text, kAnywhere, found->begin + 1))
    if (const auto amount = amount_behind(text, found->end, of_bytes)) return amount;
  return {};
}

// "31.75 gib total capacity", "131.50 mib free": the amount comes right before the word.
std::optional<Bytes> amount_before(std::string_view text, std::string_view phrase) {
  constexpr std::size_t kLongest = 24;
  for (auto found = find(phrase, text); found;
       found = find(phrase, text, kAnywhere, found->begin + 1)) {
    std::size_t at = found->begin > kLongest ? found->begin - kLongest : 0;
    for (; at < found->begin; ++at) {
      const bool inside = at > 0 && (is_digit(text[at - 1]) || text[at - 1] == '.');
      if (!is_digit(text[at]) || inside) continue;
      const auto amount = amount_at(text, at);
      if (amount && amount->has_unit &&
          (amount->end == found->begin || amount->end + 1 == found->begin))
        return amount->bytes;
    }
  }
  return {};
}

// Tries all places of each phrase (rules.h).
std::optional<Bytes> amount_by(const Words& phrases, std::string_view text) {
  for (const std::string_view phrase : phrases) {
    const auto amount =
        phrase.front() == '~'
            ? amount_before(text, phrase.substr(1))
            : amount_after(text, phrase.substr(0, phrase.size() - 1), phrase.back() == '#');
    if (amount) return amount;
  }
  return {};
}

struct Pair {
  std::optional<Bytes> first, second;
};

// "9.08g of 7.48g", "59.49gb / 62.58gb", "16.2/23.6 gib": the unit may appear only once.
Pair pair_at(std::string_view text, std::size_t at, std::string_view between, bool of_bytes) {
  const std::size_t end_of_number = after_number(text, at);
  if (end_of_number == at) return {};
  const auto first = amount_at(text, at);
  const std::size_t end = first ? first->end : end_of_number;
  if (!text.substr(end).starts_with(between)) return {};
  const std::size_t other = end + between.size();
  const auto second = amount_at(text, other);
  if (!second || (!second->has_unit && !of_bytes)) return {};
  if (first && (first->has_unit || of_bytes)) return {first->bytes, second->bytes};
  const auto part = to_number(text.substr(at, end_of_number - at));
  const auto whole = to_number(text.substr(other, after_number(text, other) - other));
  if (!part || !whole || *whole <= 0) return {};
  const double bytes = static_cast<double>(second->bytes.count) * (*part / *whole);
  return {Bytes{static_cast<std::int64_t>(bytes)}, second->bytes};
}

Pair pair_after(std::string_view text, std::string_view pattern, std::string_view between,
                bool of_bytes = false) {
  for (auto found = find(pattern, text); found;
       found = find(pattern, text, kAnywhere, found->begin + 1)) {
    const Pair pair = pair_at(text, found->end, between, of_bytes);
    if (pair.second) return pair;
  }
  return {};
}

void take(std::optional<Bytes>& figure, std::optional<Bytes> other) {
  if (!figure) figure = other;
}

// Two amounts that belong together, in the words of the programs that print them.
void take_pairs(Figures& figures, std::string_view text) {
  const Pair hbm = pair_after(text, "used ", " of ");  // XLA
  take(figures.asked, hbm.first);
  take(figures.total, hbm.second);
  const Pair enforced = pair_after(text, "available failed, ", " > ", true);  // Paddle
  take(figures.asked, enforced.first);
  take(figures.free, enforced.second);
  const Pair free = pair_after(text, "free memory on device*(", "/");  // vLLM
  take(figures.free, free.first);
  take(figures.total, free.second);
  take(figures.total, pair_after(text, "was ", " / ").second);           // Ray
  take(figures.total, pair_after(text, "memory usage:*(", "/").second);  // Julia
}

std::optional<int> number_after(std::string_view text, const Words& phrases) {
  for (const std::string_view phrase : phrases)
    for (auto found = find(phrase, text); found;
         found = find(phrase, text, kAnywhere, found->begin + 1)) {
      std::size_t end = found->end;
      while (end < text.size() && is_digit(text[end])) ++end;
      if (end == found->end || end > found->end + 3) continue;
      // Not numbers of a device: "gpu 80gb", "cuda11.8".
      const bool is_number = end >= text.size() || text[end] == '_' || text[end] == '.' ||
                             !is_word_character(text[end]);
      if (!is_number || after_number(text, found->end) != end) continue;
      if (const auto number = to_integer(text.substr(found->end, end - found->end)))
        return static_cast<int>(*number);
    }
  return {};
}

}  // namespace

Figures figures_in(std::string_view text) {
  const auto& phrases = rules().figures;
  Figures figures{.asked = amount_by(phrases.asked, text),
                  .total = amount_by(phrases.total, text),
                  .free = amount_by(phrases.free, text),
                  .cached = amount_by(phrases.cached, text),
                  .device = {}};
  take_pairs(figures, text);
  figures.device = number_after(text, phrases.device);
  return figures;
}

}  // namespace headroom::oom::detail
