#include "headroom/oom/detail/exceptions.h"
#include "headroom/oom/detail/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::oom::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> names(std::string_view text) {
  std::vector<std::string> result;
  for (const Raised& raised : raised_in(text)) result.emplace_back(raised.name);
  return result;
}

TEST(Raised, StandsAtTheBeginningOfAMessage) {
  EXPECT_THAT(names("torch.cuda.outofmemoryerror: cuda out of memory"),
              ElementsAre("torch.cuda.outofmemoryerror"));
  EXPECT_THAT(names("memoryerror"), ElementsAre("memoryerror"));
  EXPECT_THAT(names("2024-01-01 error app: keyerror: 'x'"), ElementsAre("keyerror"));
  EXPECT_THAT(names("exception in thread \"main\" java.lang.outofmemoryerror: java heap space"),
              ElementsAre("java.lang.outofmemoryerror"));
}

TEST(Raised, IsAWordElsewhere) {
  EXPECT_THAT(names("module 'torch.cuda' has no attribute 'outofmemoryerror'"), IsEmpty());
  EXPECT_THAT(names("except (memoryerror, oserror) as error:"), IsEmpty());
  EXPECT_THAT(names("with pytest.raises(memoryerror):"), IsEmpty());
  EXPECT_THAT(names("raise memoryerror()"), IsEmpty());
  EXPECT_THAT(names("assertionerror: memoryerror not raised"), ElementsAre("assertionerror"));
}

TEST(Raised, MayBeAPrintedValue) {
  const auto raised = raised_in("run 3 errored: runtimeerror('cuda out of memory')");
  ASSERT_EQ(raised.size(), 1U);
  EXPECT_TRUE(raised[0].is_logged);
  EXPECT_FALSE(begins_with_raised("runtimeerror('cuda out of memory')"));
  EXPECT_TRUE(begins_with_raised("runtimeerror: cuda out of memory"));
}

TEST(Raised, InAnotherProcessStandsInBrackets) {
  EXPECT_THAT(names("ray.exceptions.raytaskerror(outofmemoryerror): ray::f()"),
              ElementsAre("outofmemoryerror"));
}

TEST(TypesOfExceptions, SayOnWhichSide) {
  EXPECT_EQ(first_rule(rules().types, "torch.outofmemoryerror")->meaning, Meaning::gpu);
  EXPECT_EQ(first_rule(rules().types, "ray.exceptions.outofmemoryerror")->meaning, Meaning::host);
  EXPECT_EQ(first_rule(rules().types, "numpy.core._exceptions.memoryerror")->meaning,
            Meaning::host);
  EXPECT_EQ(first_rule(rules().types, "pycuda._driver.memoryerror")->meaning, Meaning::gpu);
  EXPECT_EQ(first_rule(rules().types, "std::bad_alloc")->meaning, Meaning::host);
  EXPECT_FALSE(first_rule(rules().types, "psleak.memoryleakerror"));
}

TEST(TypesOfExceptions, SomeAreMistakes) {
  EXPECT_TRUE(is_of_a_bug("keyerror"));
  EXPECT_TRUE(is_of_a_bug("json.decoder.jsondecodeerror"));
  EXPECT_FALSE(is_of_a_bug("runtimeerror"));
  EXPECT_FALSE(is_of_a_bug("valueerror")) << "vLLM raises it where the KV cache does not fit";
}

}  // namespace
}  // namespace headroom::oom::detail
