#include "headroom/oom/detail/figures.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string>

#include "headroom/base/text.h"
#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

struct Amount {
  Bytes bytes;
  std::size_t end = 0;
};

// 1 for bytes; 0 for what is no unit. Programs that print GB or G of memory count in 1024s, nearly
// all of them: PyTorch's MPS, Paddle, TensorFlow, Ray.
double unit_of(std::string_view word) {
  if (word.empty() || word == "b" || word == "byte" || word == "bytes") return 1;
  const std::size_t power = std::string_view("kmgtpe").find(word[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = word.substr(1);
  if (!rest.empty() && rest != "b" && rest != "ib" && rest != "bytes") return 0;
  double unit = 1024;
  for (std::size_t i = 0; i < power; ++i) unit *= 1024;
  return unit;
}

Bytes saturated(double bytes) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  if (bytes >= static_cast<double>(kMost)) return Bytes{kMost};
  return Bytes{static_cast<std::int64_t>(bytes)};
}

// "304.00 MiB", "25,600,000 bytes", "165.586182MB", "2.12G", "643840" at the beginning of a text.
std::optional<Amount> amount_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  std::string digits;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.' || text[end] == ',')) {
    if (text[end] != ',') digits += text[end];
    ++end;
  }
  while (digits.ends_with('.')) digits.pop_back();
  const auto number = to_number(digits);
  if (!number || digits.size() > 40) return {};
  std::size_t word = end;
  if (word < text.size() && text[word] == ' ') ++word;
  std::size_t word_end = word;
  while (word_end < text.size() && text[word_end] >= 'a' && text[word_end] <= 'z') ++word_end;
  const double unit = unit_of(text.substr(word, word_end - word));
  if (unit == 0 && digits.find('.') != std::string::npos) return {};  // no amount of memory
  return Amount{saturated(*number * std::max(unit, 1.0)), unit == 0 ? end : word_end};
}

// Where more than one says it, the most exact comes first. `~` stands for the amount.
std::optional<Bytes> amount_after(std::string_view text,
                                  std::span<const std::string_view> phrases) {
  for (const std::string_view phrase : phrases) {
    const auto found = find(phrase, text);
    if (!found) continue;
    std::size_t at = found->end;
    while (at < text.size() && (text[at] == ' ' || text[at] == ':' || text[at] == '(')) ++at;
    const auto amount = amount_at(text, at);
    if (!amount) continue;
    // "2.12G (2282521344 bytes)": the number in brackets is not rounded.
    if (text.substr(amount->end).starts_with(" ("))
      if (const auto exact = amount_at(text, amount->end + 2);
          exact && text.substr(0, exact->end).ends_with("bytes"))
        return exact->bytes;
    return amount->bytes;
  }
  return {};
}

// "31.75 gib total capacity", "131.50 mib free": the amount stands before the word.
std::optional<Bytes> amount_before(std::string_view text, std::string_view phrase) {
  const auto found = find(phrase, text);
  if (!found) return {};
  const std::size_t from = found->begin > 24 ? found->begin - 24 : 0;
  for (std::size_t at = from; at < found->begin; ++at) {
    if (!is_digit(text[at]) || (at > 0 && (is_digit(text[at - 1]) || text[at - 1] == '.')))
      continue;
    const auto amount = amount_at(text, at);
    if (amount && (amount->end == found->begin || amount->end + 1 == found->begin))
      return amount->bytes;
  }
  return {};
}

std::optional<int> number_after(std::string_view text, std::span<const std::string_view> phrases) {
  for (const std::string_view phrase : phrases) {
    const auto found = find(phrase, text);
    if (!found) continue;
    std::size_t end = found->end;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end == found->end || end > found->end + 3) continue;
    if (const auto number = to_integer(text.substr(found->end, end - found->end)))
      return static_cast<int>(*number);
  }
  return {};
}

constexpr std::array<std::string_view, 26> kAsked{"tried to allocate ",
                                                  "requested size was ",
                                                  "requested :",
                                                  "requested memory: ",
                                                  "trying to allocate ",
                                                  "attempting to allocate ",
                                                  "attempting to reserve ",
                                                  "requested bytes of ",
                                                  "requested buffer of size ",
                                                  "buffer of size ",
                                                  "allocation of size ",
                                                  "allocate request for ",
                                                  "allocation failed for size",
                                                  "allocation of size ::",
                                                  "out of memory allocating ",
                                                  "out of memory to allocate ",
                                                  "failed to allocate ",
                                                  "cannot allocate vector of size ",
                                                  "cannot allocate ",
                                                  "unable to allocate ",
                                                  "allocating ",
                                                  "failed to cuda calloc ",
                                                  "memory allocation of ",
                                                  "array with size ",
                                                  "requires more system memory ",
                                                  "error allocating "};
constexpr std::array<std::string_view, 7> kTotal{"total capacity of ",
                                                 "total capacty of ",
                                                 "device limit :",
                                                 "max allowed: ",
                                                 "maximum allowed buffer size of ",
                                                 "buffer maximum of ",
                                                 "total memory: "};
constexpr std::array<std::string_view, 9> kFree{"free (according to cuda):",
                                                "available memory is only ",
                                                "than is available ",
                                                "available memory of ",
                                                "there are ",
                                                "free memory: ",
                                                "of which ",
                                                "free memory on device (",
                                                "freememory: "};
constexpr std::array<std::string_view, 12> kDevice{
    "<gpu ",       "device:gpu:",     "<gpu_",  "<npu ", "<xpu ", "<hpu ", "current device: ",
    "<on device ", "device ordinal ", "<cuda:", "cuda",  "gpu="};

}  // namespace

Figures figures_in(std::string_view text) {
  Figures figures;
  figures.asked = amount_after(text, kAsked);
  figures.total = amount_after(text, kTotal);
  if (!figures.total) figures.total = amount_before(text, "total capac");
  figures.free = amount_before(text, "is free");
  if (!figures.free) figures.free = amount_before(text, "free;");
  if (!figures.free) figures.free = amount_before(text, "free)");
  if (!figures.free) figures.free = amount_before(text, "free.");
  if (!figures.free) figures.free = amount_after(text, kFree);
  figures.device = number_after(text, kDevice);
  return figures;
}

}  // namespace headroom::oom::detail
