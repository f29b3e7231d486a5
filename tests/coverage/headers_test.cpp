// Every name in LibTorch's headers has a case, and every case covers a name.
#include "headers.h"

#include <gmock/gmock.h>

#include "case.h"

namespace headroom::coverage {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Names covered() {
  Names names;
  for (const Case& one : all_cases()) names.insert(one.covers);
  return names;
}

Names without(const Names& these, const Names& those) {
  Names rest;
  for (const std::string& name : these)
    if (those.count(name) == 0) rest.insert(name);
  return rest;
}

TEST(HeaderNames, AreThoseAProgramCanUse) {
  const Names& names = header_names();
  for (const char* name : {"Conv2d", "Sequential", "ParameterDict", "AnyModule", "LSTM",
                           "F::conv2d", "F::one_hot", "F::max_pool3d_with_indices",
                           "F::grid_sample", "utils::clip_grad_norm_", "utils::rnn::PackedSequence",
                           "utils::rnn::pad_packed_sequence", "optim::LBFGS", "optim::StepLR"})
    EXPECT_THAT(names, Contains(name));
  for (const char* name : {"ConvNd", "M", "F::_smooth_l1_loss", "F::_narrow_with_range",
                           "optim::Optimizer", "optim::LRScheduler"})
    EXPECT_THAT(names, Not(Contains(name)));
}

TEST(EveryHeaderName, HasACase) {
  EXPECT_THAT(without(header_names(), covered()), IsEmpty());
}

// Names of ATen are of no header that is read.
TEST(EveryCase, CoversANameOfTheHeaders) {
  Names unknown = without(covered(), header_names());
  for (auto name = unknown.begin(); name != unknown.end();)
    name =
        name->rfind("at::", 0) == 0 || *name == "autocast" ? unknown.erase(name) : std::next(name);
  EXPECT_THAT(unknown, IsEmpty());
}

TEST(EveryCase, HasANameOfItsOwn) {
  Names names;
  for (const Case& one : all_cases())
    EXPECT_TRUE(names.insert(identifier(one)).second) << identifier(one);
  EXPECT_THAT(names, SizeIs(all_cases().size()));
}

TEST(Refusals, AreAtMostTwoInAHundredNames) {
  Names refused;
  for (const Case& one : all_cases())
    if (!one.limits.refused.empty() || !one.limits.not_simulated.empty())
      refused.insert(one.covers);
  EXPECT_LE(refused.size() * 100, covered().size() * 2);
}

}  // namespace
}  // namespace headroom::coverage
