#include "headroom/data/masked_tokens.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/data/loader.h"

namespace headroom::data {
namespace {

constexpr std::int64_t kHidden = 999, kEnd = 0, kVocabulary = 1000, kNone = -100;

// Rows of so many tokens: 1, 2, 3, ... with a document's end at each tenth place. The first
// `silent` have no label.
class Counting : public Dataset {
 public:
  explicit Counting(std::int64_t seq, std::int64_t silent = 0) : seq_(seq), silent_(silent) {}
  [[nodiscard]] std::int64_t size() const override { return 50; }
  [[nodiscard]] Tensors example(std::int64_t /*index*/, std::uint64_t /*seed*/) const override {
    torch::Tensor tokens = torch::arange(seq_) + 1;
    tokens.masked_fill_(tokens % 10 == 0, kEnd);
    torch::Tensor labels = tokens.clone();
    labels.slice(0, 0, silent_).fill_(kNone);
    return {tokens, labels};
  }

 private:
  std::int64_t seq_, silent_;
};

std::shared_ptr<Dataset> masked(std::int64_t seq, std::int64_t silent = 0) {
  return masked_tokens(std::make_shared<Counting>(seq, silent),
                       {.mask_token = kHidden, .vocabulary = kVocabulary, .never = {kEnd}});
}

// BERT learned nothing and reported a perfect loss on random words: no token was hidden, so that
// the labels were the inputs.
TEST(MaskedTokens, HideAsBertDoes) {
  constexpr std::int64_t kLength = 500;  // of which 450 may be chosen
  const auto set = masked(kLength);
  const torch::Tensor whole = Counting(kLength).example(0, 0)[0];
  std::int64_t predicted = 0, hidden = 0, same = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Tensors example = set->example(0, seed);
    const torch::Tensor chosen = example[1] != kNone, left = example[0] == whole;
    EXPECT_EQ(chosen.sum().item<std::int64_t>(), 68) << "15 % of 450";
    EXPECT_TRUE(torch::equal(example[1].masked_select(chosen), whole.masked_select(chosen)));
    EXPECT_TRUE((left | chosen).all().item<bool>()) << "no other token changes";
    EXPECT_FALSE((chosen & (whole == kEnd)).any().item<bool>());
    predicted += 68;
    hidden += (chosen & (example[0] == kHidden)).sum().item<std::int64_t>();
    same += (chosen & left).sum().item<std::int64_t>();
  }
  const auto share = [&](std::int64_t part) {
    return static_cast<double>(part) / static_cast<double>(predicted);
  };
  EXPECT_NEAR(share(hidden), 0.8, 0.02);
  EXPECT_NEAR(share(same), 0.1, 0.02);
}

TEST(MaskedTokens, ChooseOneTokenOfAShortRow) {
  const auto set = masked(3);
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    EXPECT_EQ((set->example(0, seed)[1] != kNone).sum().item<std::int64_t>(), 1);
}

TEST(MaskedTokens, ChooseOnlyAmongTokensThatCount) {
  const auto set = masked(20, 12);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const torch::Tensor labels = set->example(0, seed)[1];
    EXPECT_TRUE((labels.slice(0, 0, 12) == kNone).all().item<bool>());
    EXPECT_TRUE((labels.slice(0, 12) != kNone).any().item<bool>());
  }
  EXPECT_TRUE((masked(20, 20)->example(0, 1)[1] == kNone).all().item<bool>());
}

// A mask belongs to the place in the data: a resumed run, and one with other threads, has the same.
TEST(MaskedTokens, AreTheSameAgainFromAPosition) {
  const auto set = masked(40);
  LoaderOptions options{.batch_size = 8, .shuffle = true, .seed = 3, .workers = 0};
  Loader first(set, options);
  std::vector<Position> places;
  std::vector<Batch> batches;
  for (int i = 0; i < 12; ++i) {  // over the end of an epoch
    places.push_back(first.position());
    batches.push_back(first.next());
  }
  options.workers = 3;
  for (const std::size_t i : {11U, 4U, 7U}) {
    Loader resumed(set, options);
    resumed.set_position(places[i]);
    const Batch batch = resumed.next();
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_TRUE(torch::equal(batch.tensors[k], batches[i].tensors[k])) << i;
  }
  EXPECT_FALSE(torch::equal(set->example(0, 1)[1], set->example(0, 2)[1])) << "another each epoch";
}

TEST(MaskedTokens, RefuseOptionsThatMakeNoSense) {
  const auto texts = std::make_shared<Counting>(4);
  for (const MaskOptions& options :
       {MaskOptions{.mask_token = 5, .vocabulary = 5},
        MaskOptions{.mask_token = -1, .vocabulary = 5},
        MaskOptions{.mask_token = 1, .vocabulary = 5, .share = 0},
        MaskOptions{.mask_token = 1, .vocabulary = 5, .hidden = 0.8, .random = 0.3}})
    EXPECT_THROW((void)masked_tokens(texts, options), UsageError);
}

}  // namespace
}  // namespace headroom::data
