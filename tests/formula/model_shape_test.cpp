#include "headroom/formula/model_shape.h"

#include <gtest/gtest.h>

namespace headroom::formula {
namespace {

// What the published models have, counted by their frameworks.
//   GPT-2: sum(p.numel()) of Hugging Face's openai-community/gpt2, gpt2-medium, gpt2-large (the
//   output layer is the embedding; Radford et al. 2019 print 117M, 345M and 762M, which their
//   repository corrects). OPT: facebook/opt-1.3b. Llama-2: meta-llama/Llama-2-7b-hf, -13b-hf and
//   -70b-hf, the total_size of their safetensors indexes divided by the size of an element.
struct Published {
  const char* name;
  const char* like;
  long long parameters;
};

class PublishedModel : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedModel, HasItsParametersToTheLast) {
  const ModelShape* shape = find_shape(GetParam().name);
  ASSERT_NE(shape, nullptr);
  EXPECT_EQ(parameters(*shape), GetParam().parameters);
  EXPECT_EQ(find_shape(GetParam().like), shape);
}

INSTANTIATE_TEST_SUITE_P(Table, PublishedModel,
                         ::testing::Values(Published{"125M", "GPT-2", 124'439'808},
                                           Published{"350M", "GPT-2 medium", 354'823'168},
                                           Published{"774M", "GPT-2 large", 774'030'080},
                                           Published{"1.3B", "OPT-1.3B", 1'315'758'080},
                                           Published{"7B", "Llama-2-7B", 6'738'415'616},
                                           Published{"13B", "Llama-2-13B", 13'015'864'320},
                                           Published{"70B", "Llama-2-70B", 68'976'648'192}));

TEST(StandardShapes, AreTheSevenOfTheTableInOrderOfSize) {
  ASSERT_EQ(standard_shapes().size(), 7U);
  for (std::size_t i = 1; i < standard_shapes().size(); ++i)
    EXPECT_LT(parameters(standard_shapes()[i - 1]), parameters(standard_shapes()[i]));
}

TEST(FindShape, IgnoresCaseAndKnowsNothingElse) {
  EXPECT_EQ(find_shape("7b"), find_shape("7B"));
  EXPECT_EQ(find_shape("llama-2-7b"), find_shape("7B"));
  EXPECT_EQ(find_shape("8B"), nullptr);
  EXPECT_EQ(find_shape(""), nullptr);
}

ModelShape tiny() {
  ModelShape shape;
  shape.name = "tiny";
  shape.layers = 2;
  shape.hidden = 4;
  shape.heads = 2;
  shape.kv_heads = 2;
  shape.ffn = 16;
  shape.vocab = 10;
  shape.positions = 8;
  return shape;
}

// Counted by hand. A layer: q, k, v, o of 4x4 with 4 biases each (80), up 4x16 + 16 (80),
// down 16x4 + 4 (68), two norms of 4 + 4 (16): 244. Embeddings 10x4 + 8x4 = 72, last norm 8.
TEST(Parameters, OfAHandCountedGpt) {
  ModelShape shape = tiny();
  shape.position_rows = 8;
  shape.biases = true;
  shape.tied_embeddings = true;
  EXPECT_EQ(layer_parameters(shape), 244);
  EXPECT_EQ(embedding_parameters(shape), 72);
  EXPECT_EQ(parameters(shape), 2 * 244 + 72 + 8);
}

// Counted by hand, one key-value head for two heads, so k and v are 4x2. A layer: q and o 32,
// k and v 16, gate, up and down 3 x 64 = 192, two norms 8: 248. Two tables of 10x4 = 80, norm 4.
TEST(Parameters, OfAHandCountedLlama) {
  ModelShape shape = tiny();
  shape.kv_heads = 1;
  shape.gated_ffn = true;
  EXPECT_EQ(kv_width(shape), 2);
  EXPECT_EQ(layer_parameters(shape), 248);
  EXPECT_EQ(embedding_parameters(shape), 80);
  EXPECT_EQ(parameters(shape), 2 * 248 + 80 + 4);
}

}  // namespace
}  // namespace headroom::formula
