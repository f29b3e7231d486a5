// The catalogue: enough cards, every figure with a source, and names found as people type them.

#include "headroom/gpu/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/gpu/detail/embedded.h"
#include "headroom/gpu/profile.h"

namespace headroom::gpu {
namespace {

using namespace headroom::literals;

const Json& data() {
  static const Json file = parse_json(embedded::cards_json(), "cards.json");
  return file;
}

std::string found(std::string_view name) {
  const CatalogueCard* card = find_card(name);
  return card == nullptr ? "none" : card->brief;
}

std::string refusal_of(std::string_view name) {
  try {
    return "accepted as " + card_named(name).brief;
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Catalogue, HasTheCardsPeopleTrainOn) {
  EXPECT_GE(catalogue().size(), 45u);
  std::map<std::string, int> kinds;
  for (const CatalogueCard& card : catalogue()) ++kinds[card.kind];
  for (const char* kind : {"consumer", "workstation", "datacenter", "mig"})
    EXPECT_GE(kinds[kind], 5) << kind;
}

TEST(Catalogue, EveryFigureHasASourceThatExists) {
  for (const Json& card : data().at("cards")) {
    const Json& sources = card.at("source");
    for (const char* figure : {"memory_mib", "cuda_total_mib", "bandwidth_gb_s", "tflops", "pcie",
                               "nvlink_gb_s", "power_w"}) {
      if (card.at(figure).is_null()) continue;
      ASSERT_TRUE(sources.contains(figure) && sources.at(figure).is_string())
          << card.at("name") << " " << figure;
      EXPECT_TRUE(data().at("sources").contains(sources.at(figure).get<std::string>()))
          << card.at("name") << " " << figure;
    }
  }
}

TEST(Catalogue, EverySourceSaysWhatAndWhere) {
  for (const auto& [id, source] : data().at("sources").items()) {
    EXPECT_FALSE(source.at("what").get<std::string>().empty()) << id;
    EXPECT_FALSE(source.at("where").get<std::string>().empty()) << id;
  }
}

TEST(Catalogue, FiguresAreWithinWhatChipsCanDo) {
  for (const CatalogueCard& card : catalogue()) {
    EXPECT_GT(card.total, 4_GiB) << card.name;
    EXPECT_LT(card.total, 300_GiB) << card.name;
    EXPECT_LE(card.cuda_total.value_or(card.total), card.total) << card.name;
    EXPECT_GT(card.bandwidth_gb_s, 90) << card.name;
    EXPECT_LT(card.bandwidth_gb_s, 10000) << card.name;
    ASSERT_TRUE(card.rates.fp32) << card.name;
    EXPECT_GT(card.pcie_gb_s, 7) << card.name;
    EXPECT_FALSE(card.sources.empty()) << card.name;
    // The data is dense: bf16 beyond 60 times fp32 would be the figure with sparsity, or fp8.
    EXPECT_LT(card.rates.bf16.value_or(0), 60 * *card.rates.fp32) << card.name;
  }
}

TEST(Catalogue, NoBf16BeforeAmpere) {
  for (const CatalogueCard& card : catalogue()) {
    const bool has = card.capability[0] >= '8' || card.capability.size() > 3;
    EXPECT_EQ(card.rates.bf16.has_value(), has) << card.name;
    EXPECT_EQ(card.rates.tf32.has_value(), has) << card.name;
  }
}

TEST(Catalogue, EveryCardHasAProfileOfItsCapability) {
  for (const CatalogueCard& card : catalogue()) {
    const DeviceProfile* profile = find_profile(card.profile);
    ASSERT_NE(profile, nullptr) << card.name;
    EXPECT_EQ(
        std::count(profile->capabilities.begin(), profile->capabilities.end(), card.capability), 1)
        << card.name;
  }
}

TEST(Catalogue, NoTwoCardsAnswerToOneName) {
  for (const CatalogueCard& card : catalogue()) {
    EXPECT_EQ(find_card(card.name), &card) << card.name;
    EXPECT_EQ(find_card(card.brief), &card) << card.brief;
    for (const std::string& alias : card.aliases) EXPECT_EQ(find_card(alias), &card) << alias;
  }
}

TEST(FindCard, TakesTheSpellingsPeopleUse) {
  const std::map<std::string, std::vector<std::string>> spellings{
      {"RTX 4090",
       {"4090", "rtx4090", "RTX-4090", "NVIDIA GeForce RTX 4090", "geforce rtx 4090", " 4090 "}},
      {"A100 40GB", {"A100-40GB", "nvidia a100 sxm4 40gb", "NVIDIA A100-SXM4-40GB", "a100 40gb"}},
      {"A100 80GB", {"A100-80GB", "a100 sxm 80gb", "A100-SXM4-80GB"}},
      {"A100 80GB PCIe", {"a100 pcie 80gb", "NVIDIA A100 80GB PCIe"}},
      {"H100 PCIe", {"h100 pcie", "H100-PCIE", "NVIDIA H100 PCIe"}},
      {"H100", {"h100", "h100 sxm", "h100-sxm5", "h100 80gb hbm3"}},
      {"RTX 3080 12GB", {"3080 12gb", "rtx 3080 12 gb", "RTX3080-12GB"}},
      {"RTX 3080", {"3080", "3080 10gb"}},
      {"T4", {"t4", "Tesla T4", "nvidia tesla t4"}},
      {"RTX 6000 Ada", {"6000 ada", "rtx 6000 ada", "NVIDIA RTX 6000 Ada Generation"}},
      {"Quadro RTX 6000", {"Quadro RTX 6000", "quadro rtx6000"}},
      {"RTX A6000", {"a6000", "NVIDIA RTX A6000"}},
      {"V100 32GB", {"v100 32gb", "Tesla V100-SXM2-32GB"}},
      {"RTX PRO 4000", {"RTX PRO 4000", "pro 4000", "NVIDIA RTX PRO 4000 Blackwell"}},
      {"RTX PRO 5000 48GB", {"rtx pro 5000 48gb", "NVIDIA RTX PRO 5000 Blackwell"}},
      {"RTX PRO 5000 72GB", {"RTX PRO 5000 72GB", "NVIDIA RTX PRO 5000 72GB Blackwell"}},
      {"RTX PRO 6000", {"RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"}},
      {"RTX PRO 6000 Server", {"NVIDIA RTX PRO 6000 Blackwell Server Edition"}},
      {"RTX PRO 6000 Max-Q", {"pro 6000 max-q", "rtx pro 6000 maxq"}},
      {"RTX 5090", {"5090", "NVIDIA GeForce RTX 5090"}},
      {"RTX 5090 Laptop", {"5090 laptop", "NVIDIA GeForce RTX 5090 Laptop GPU"}},
      {"RTX 5060 Ti 8GB", {"rtx 5060 ti 8gb"}},
      {"B300", {"b300", "NVIDIA B300 SXM6 AC"}},
      {"GB10", {"dgx spark", "NVIDIA GB10"}},
      {"A100 40GB 1g.5gb", {"NVIDIA A100-SXM4-40GB MIG 1g.5gb"}}};
  for (const auto& [brief, names] : spellings)
    for (const std::string& name : names) EXPECT_EQ(found(name), brief) << name;
}

TEST(FindCard, RejectsTextThatIsNotAName) {
  for (const char* name : {"", " ", "gpu", "NVIDIA", "nvidia geforce", "banana", "409", "40900",
                           "rtx 4090 banana", "4090 80gb"})
    EXPECT_EQ(found(name), "none") << name;
}

// `sim:8x24GB` once became eight RTX 3090, because 24 GB is a word of that card.
TEST(FindCard, ASizeAloneNamesNoCard) {
  for (const char* size : {"24GB", "80gb", "16 GB", "40gb"}) EXPECT_EQ(found(size), "none") << size;
}

TEST(FindCard, ASliceIsMeantOnlyWhenMigIsSaid) {
  for (const CatalogueCard* card : cards_called("a100 mig")) EXPECT_EQ(card->kind, "mig");
  EXPECT_EQ(find_card("a100 mig 2g.10gb")->kind, "mig");
  EXPECT_EQ(find_card("h100")->kind, "datacenter");
}

// "A100" was the 80 GB one, though half of them have 40; "RTX" was an RTX 2060, and "4070 SUPER",
// which was not in the catalogue then, the 4070 Ti SUPER.
TEST(FindCard, GuessesNothing) {
  for (const char* name :
       {"A100", "a100 sxm", "A100 PCIe", "V100", "RTX", "rtx 6000", "a100 mig"}) {
    EXPECT_GT(cards_called(name).size(), 1U) << name;
    EXPECT_EQ(found(name), "none") << name;
  }
  EXPECT_THAT(cards_called("RTX 2070 SUPER"), ::testing::IsEmpty());
  EXPECT_EQ(found("RTX 4070 SUPER"), "RTX 4070 SUPER");
  EXPECT_EQ(cards_called("P100").size(), 1U) << "there is one";
}

TEST(CardNamed, ARefusalNamesTheNearestCard) {
  EXPECT_EQ(refusal_of("4090"), "accepted as RTX 4090");
  EXPECT_EQ(refusal_of("RTX 4091"),
            "[card_named] expected a GPU of the catalogue (headroom cards lists them), received "
            "'RTX 4091'; try RTX 4090");
  EXPECT_THAT(refusal_of("409"), ::testing::EndsWith("; try RTX 4090"));
  EXPECT_THAT(refusal_of("RTX4091"), ::testing::EndsWith("; try RTX 4090"));
  EXPECT_THAT(refusal_of("H100 PCI"), ::testing::EndsWith("; try H100 PCIe"));
  EXPECT_EQ(refusal_of("zzzzzzzzzzzz").find("; try"), std::string::npos) << "nothing is near";
}

// "RTX 9999" once got no suggestion.
TEST(CardNamed, ARefusalNamesCardsOfTheSeriesIfNoNameIsOneEditAway) {
  EXPECT_THAT(refusal_of("RTX 9999"), ::testing::EndsWith("; try RTX 3090, RTX 4090 or RTX 5090"));
}

// People with an RTX PRO 5000 had no name for it, and a nameless card of its size was 0.29 % off.
TEST(CardNamed, ACardInTwoSizesIsNamedWithBoth) {
  EXPECT_THAT(refusal_of("RTX PRO 5000"),
              ::testing::EndsWith("; try RTX PRO 5000 48GB or RTX PRO 5000 72GB"));
}

// A card of 24 GiB took the rates of a TITAN RTX, which does not compute in bf16.
TEST(RatesFor, ASizeAreThoseOfTheCardNearestInMemory) {
  using namespace headroom::literals;
  EXPECT_EQ(rates_for("Simulated GPU 31.36 GiB", 33'672'000'000_B).brief, "RTX 5090")
      << "whose total by CUDA is 31.35 GiB";
  EXPECT_EQ(rates_for("Simulated GPU 24.00 GiB", 24_GiB).brief, "RTX 3090")
      << "the first of four that computes in bf16";
  EXPECT_EQ(rates_for("", 80_GiB).brief, "A100 80GB PCIe");
  EXPECT_NE(rates_for("", 5_GiB).kind, "mig");
  EXPECT_EQ(rates_for("NVIDIA GeForce RTX 4090", 10_GiB).brief, "RTX 4090")
      << "a card of the catalogue has its own";
}

TEST(CardNamed, ANameOfSeveralIsRefusedWithAllOfThem) {
  EXPECT_EQ(refusal_of("A100"),
            "[card_named] expected a name that only one card has, received 'A100'; try A100 40GB "
            "PCIe, A100 40GB, A100 80GB PCIe or A100 80GB");
  EXPECT_NE(refusal_of("RTX").find("others (headroom cards)"), std::string::npos)
      << refusal_of("RTX");
}

}  // namespace
}  // namespace headroom::gpu
