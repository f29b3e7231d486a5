#include "headroom/gpu/catalogue.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/gpu/detail/embedded.h"

namespace headroom::gpu {
namespace {

Bytes mebibytes(const Json& n) {
  return Bytes{n.get<std::int64_t>() << 20};
}

std::optional<double> number_or_none(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return {};
  return at->get<double>();
}

// "A datasheet; an issue": the titles of a card's sources, each once.
std::string titles(const Json& card, const Json& sources) {
  std::vector<std::string> found;
  for (const Json& id : card.at("source")) {
    if (!id.is_string()) continue;
    const auto title = sources.at(id.get<std::string>()).at("what").get<std::string>();
    if (std::find(found.begin(), found.end(), title) == found.end()) found.push_back(title);
  }
  return join(found, "; ");
}

CatalogueCard card_from(const Json& json, const Json& sources) {
  CatalogueCard card;
  card.name = json.at("name");
  card.brief = json.at("short");
  card.aliases = json.at("aliases").get<std::vector<std::string>>();
  card.kind = json.at("class");
  card.architecture = json.at("architecture");
  card.capability = json.at("compute_capability");
  card.total = mebibytes(json.at("memory_mib"));
  if (const Json& cuda = json.at("cuda_total_mib"); !cuda.is_null())
    card.cuda_total = mebibytes(cuda);
  card.bandwidth_gb_s = json.at("bandwidth_gb_s");
  const Json& rates = json.at("tflops");
  card.rates = {.fp32 = number_or_none(rates, "fp32"),
                .tf32 = number_or_none(rates, "tf32"),
                .fp16 = number_or_none(rates, "fp16"),
                .bf16 = number_or_none(rates, "bf16")};
  card.pcie = json.at("pcie");
  card.pcie_gb_s = number_or_none(json, "pcie_gb_s").value_or(0);
  card.nvlink_gb_s = number_or_none(json, "nvlink_gb_s").value_or(0);
  card.nvlink_joins = json.value("nvlink_joins", 0);
  for (const Json& measured : json.value("all_reduce_gb_s", Json::array()))
    card.all_reduces.push_back({measured.at(0), measured.at(1)});
  card.power_w = number_or_none(json, "power_w");
  card.profile = json.at("profile");
  card.sources = titles(json, sources);
  return card;
}

std::vector<CatalogueCard> load() {
  const Json file = parse_json(embedded::cards_json(), "cards.json");
  std::vector<CatalogueCard> cards;
  for (const Json& card : file.at("cards")) cards.push_back(card_from(card, file.at("sources")));
  return cards;
}

// The significant words of a name: "nvidia geforce rtx 4090" -> {rtx, 4090}.
std::vector<std::string> words_of(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kVendorWords{"nvidia", "geforce", "tesla",
                                                                "gpu"};
  std::vector<std::string> words(1);
  for (const unsigned char c : name) {
    // A dot is part of a word: "1g.5gb" is one word.
    if (std::isalnum(c) || c == '.') {
      words.back() += static_cast<char>(std::tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  std::erase_if(words, [](const std::string& word) {
    return word.empty() ||
           std::find(kVendorWords.begin(), kVendorWords.end(), word) != kVendorWords.end();
  });
  return words;
}

std::string squeezed(std::string_view name) {
  return join(words_of(name), "");
}

std::vector<std::string> spellings(const CatalogueCard& card) {
  std::vector<std::string> all{card.name, card.brief};
  all.insert(all.end(), card.aliases.begin(), card.aliases.end());
  return all;
}

bool called_exactly(const CatalogueCard& card, const std::string& squeezed_name) {
  const auto names = spellings(card);
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& spelling) { return squeezed(spelling) == squeezed_name; });
}

// "mig", or a profile such as "1g.5gb".
bool names_slice(const std::string& word) {
  return word == "mig" || word.find("g.") != std::string::npos;
}

bool is_size(const std::string& word) {
  return word.ends_with("gb") && to_integer(word.substr(0, word.size() - 2));
}

std::set<std::string> words_of(const CatalogueCard& card) {
  std::set<std::string> words;
  for (const std::string& spelling : spellings(card))
    for (std::string& word : words_of(std::string_view(spelling))) words.insert(std::move(word));
  words.insert(std::to_string(std::lround(card.total.gib())) + "gb");
  return words;
}

// True if each word of the question is a word of the card or its size ("a100 40gb", "3080 10gb"). A
// size alone names no card: "sim:8x24GB" means bytes. "4070 SUPER" does not match the 4070 Ti
// SUPER.
bool has_words(const CatalogueCard& card, const std::vector<std::string>& question) {
  const std::set<std::string> words = words_of(card);
  const auto asks_for = [&](std::string_view word) {
    return std::find(question.begin(), question.end(), word) != question.end();
  };
  const bool asks_for_slice = std::any_of(question.begin(), question.end(), names_slice);
  if ((card.kind == "mig") != asks_for_slice) return false;
  for (const char* suffix : {"ti", "super"})
    if (words.contains(suffix) != asks_for(suffix)) return false;
  if (std::all_of(question.begin(), question.end(), is_size)) return false;
  return std::all_of(question.begin(), question.end(),
                     [&](const std::string& word) { return words.contains(word); });
}

// The part of a name to compare by edits. It drops "rtx" and "gtx", which nearly every card has:
// people type "409" for the RTX 4090.
std::string essence(std::string_view name) {
  std::vector<std::string> words = words_of(name);
  for (std::string& word : words)
    if (word.starts_with("rtx") || word.starts_with("gtx")) word.erase(0, 3);
  return join(words, "");
}

// "A, B or C"; for more than `most` names, the first ones and the number of the rest.
std::string alternatives(const std::vector<std::string>& names, std::size_t most) {
  if (names.size() > most)
    return join({names.begin(), names.begin() + static_cast<std::ptrdiff_t>(most)}, ", ") +
           " or one of " + std::to_string(names.size() - most) + " others (headroom cards)";
  if (names.size() < 2) return join(names, "");
  return join({names.begin(), names.end() - 1}, ", ") + " or " + names.back();
}

// Among the cards that share a word with the name, those with the fewest edits.
std::vector<std::string> namesakes(std::string_view name) {
  const std::vector<std::string> question = words_of(name);
  std::vector<std::string> nearest;
  std::size_t fewest = 0;
  for (const CatalogueCard& card : catalogue()) {
    const std::set<std::string> words = words_of(card);
    const bool shares = std::any_of(question.begin(), question.end(),
                                    [&](const auto& word) { return words.contains(word); });
    if (!shares || card.kind == "mig") continue;
    const std::size_t edits = edits_between(essence(name), essence(card.brief));
    if (!nearest.empty() && edits > fewest) continue;
    if (edits < fewest) nearest.clear();
    fewest = edits;
    nearest.push_back(card.brief);
  }
  return nearest;
}

// Brief names of the cards nearest to an unknown name, at most three: "RTX 3090, RTX 4090 or RTX
// 5090" for "RTX 9999". "" if no card is near.
std::string nearest_cards(std::string_view name) {
  std::vector<std::string> known;
  for (const CatalogueCard& card : catalogue()) known.push_back(essence(card.brief));
  if (const auto close = nearest(essence(name), known)) {
    const auto at = std::find(known.begin(), known.end(), *close);
    return catalogue()[static_cast<std::size_t>(at - known.begin())].brief;
  }
  return alternatives(namesakes(name), 3);
}

}  // namespace

const std::vector<CatalogueCard>& catalogue() {
  static const std::vector<CatalogueCard> cards = load();
  return cards;
}

std::vector<const CatalogueCard*> cards_called(std::string_view name) {
  const std::vector<std::string> question = words_of(name);
  const std::string whole = join(question, "");
  std::vector<const CatalogueCard*> meant;
  if (question.empty()) return meant;
  for (const CatalogueCard& card : catalogue()) {
    if (called_exactly(card, whole)) return {&card};
    if (has_words(card, question)) meant.push_back(&card);
  }
  return meant;
}

const CatalogueCard* find_card(std::string_view name) {
  const std::vector<const CatalogueCard*> meant = cards_called(name);
  return meant.size() == 1 ? meant.front() : nullptr;
}

const CatalogueCard& rates_for(std::string_view name, Bytes total) {
  if (const CatalogueCard* const own = find_card(name)) return *own;
  const auto rank = [&](const CatalogueCard& one) {
    const auto by_driver = std::abs((one.total - total).count),
               by_cuda = std::abs((one.cuda_total.value_or(one.total) - total).count);
    return std::tuple(one.kind == "mig", std::min(by_driver, by_cuda), !one.rates.bf16);
  };
  return *std::min_element(catalogue().begin(), catalogue().end(),
                           [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

const CatalogueCard& card_named(std::string_view name, std::string_view where,
                                std::string_view expected) {
  const std::vector<const CatalogueCard*> meant = cards_called(name);
  if (meant.size() == 1) return *meant.front();
  if (meant.empty()) throw UsageError(expectation(where, expected, name, nearest_cards(name)));
  std::vector<std::string> names;
  for (const CatalogueCard* card : meant) names.push_back(card->brief);
  throw UsageError(
      expectation(where, "a name that only one card has", name, alternatives(names, 6)));
}

}  // namespace headroom::gpu
