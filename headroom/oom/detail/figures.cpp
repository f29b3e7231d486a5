#include "headroom/oom/detail/figures.h"

#include <array>
#include <span>

#include "headroom/base/text.h"
#include "headroom/oom/detail/amount.h"
#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {
namespace {

// A number without a unit is an amount only if the program is known to print plain bytes.
struct Phrase {
  std::string_view pattern;
  bool of_bytes = false;
};

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

// Tries all places of each phrase. If several phrases give the amount, the most exact comes first.
std::optional<Bytes> amount_after(std::string_view text, std::span<const Phrase> phrases) {
  for (const Phrase& phrase : phrases)
    for (auto found = find(phrase.pattern, text); found;
         found = find(phrase.pattern, text, kAnywhere, found->begin + 1))
      if (const auto amount = amount_behind(text, found->end, phrase.of_bytes)) return amount;
  return {};
}

// "31.75 gib total capacity", "131.50 mib free": the amount comes right before the word.
std::optional<Bytes> amount_before(std::string_view text,
                                   std::span<const std::string_view> phrases) {
  constexpr std::size_t kLongest = 24;
  for (const std::string_view phrase : phrases)
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

std::optional<int> number_after(std::string_view text, std::span<const std::string_view> phrases) {
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

constexpr auto kAsked = std::to_array<Phrase>({
    {"tried to allocate "},
    {"requested size was ", true},
    {"requested :"},
    {"requested memory:", true},
    {"requested "},
    {"trying to allocate ", true},
    {"attempting to allocate ", true},
    {"attempting to reserve "},
    {"attempt to allocate chunk of "},
    {"requested bytes of ", true},
    {"requested buffer of size ", true},
    {"requested amount of gpu memory"},
    {"requested amount of memory"},
    {"buffer of size ", true},
    {"allocation of size ::", true},
    {"allocation of size ", true},
    {"allocation failed for size::", true},
    {"allocation failed for size", true},
    {"allocate request for "},
    {"out of memory allocating ", true},
    {"out of memory to allocate ", true},
    {"failed to allocate data of size "},
    {"failed to allocate request for "},
    {"failed to allocate memory ", true},
    {"fail to allocate memory ", true},
    {"failed to alloc device memory:", true},
    {"failed to allocate "},
    {"failed to alloc "},
    {"cannot allocate vector of size "},
    {"cannot allocate memory block of size "},
    {"cannot allocate "},
    {"could not allocate "},
    {"couldn't allocate "},
    {"unable to allocate "},
    {"can't allocate "},
    {"failed on request of size ", true},
    {"allocating "},
    {"failed to cuda calloc ", true},
    {"memory allocation of ", true},
    {"requires more system memory "},
    {"requires more gpu memory "},
    {"error allocating "},
    {"invalid buffer size: "},
    {"required size", true},
    {"need:"},
    {"size "},
});
constexpr auto kNeeded = std::to_array<std::string_view>({"kv cache is needed"});
constexpr auto kTotal = std::to_array<Phrase>({
    {"total capacity of "},
    {"total capacty of "},
    {"device limit :"},
    {"max allowed: "},
    {"maximum allowed buffer size of ", true},
    {"buffer maximum of ", true},
    {"total memory: ", true},
    {"hbm capacity "},
    {"global memory: ", true},
    {"memory limit of "},
    {"memory size of "},
    {"maximum: "},
    {"limit: "},
    {"physical memory limit of "},
    {"exceeded limit ", true},
    {"total gpu memory: "},
});
constexpr auto kTotalBefore =
    std::to_array<std::string_view>({"total capac*", "bytes total", "total;"});
constexpr auto kFree = std::to_array<Phrase>({
    {"free (according to cuda):"},
    {"available memory is only "},
    {"than is available "},
    {"available memory of ", true},
    {"available kv cache memory "},
    {"there are "},
    {"free memory: ", true},
    {"of which "},
    {"free memory on device ("},
    {"freememory: "},
    {"current free memory size", true},
    {"available memory: "},
    {"available free mem"},
    {"have:"},
    {"free "},
});
constexpr auto kFreeBefore =
    std::to_array<std::string_view>({"is free", "free;", "free)", "free.", "free,", "bytes free"});
constexpr auto kDevice = std::to_array<std::string_view>(
    {"gpu *", "device:gpu:*", "gpu_*", "npu *", "xpu *", "hpu *", "gcu *", "device:xpu:*",
     "current device: ", "on device *", "device ordinal *", "cuda:*", "dev *", "gpu:*", "device *",
     "cuda*", "gpu=*"});

}  // namespace

Figures figures_in(std::string_view text) {
  Figures figures;
  figures.asked = amount_after(text, kAsked);
  if (!figures.asked) figures.asked = amount_before(text, kNeeded);
  figures.total = amount_after(text, kTotal);
  if (!figures.total) figures.total = amount_before(text, kTotalBefore);
  figures.free = amount_before(text, kFreeBefore);
  if (!figures.free) figures.free = amount_after(text, kFree);
  take_pairs(figures, text);
  figures.device = number_after(text, kDevice);
  return figures;
}

}  // namespace headroom::oom::detail
