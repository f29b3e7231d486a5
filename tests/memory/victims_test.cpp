#include "headroom/memory/victims.h"

#include <gmock/gmock.h>

namespace headroom::memory {
namespace {

using allocator::BlockInfo;
using allocator::SegmentInfo;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kMiB = 1 << 20;

struct Part {
  std::int64_t mib;
  char kind;  // 'f': free, 'm': movable, 'x': neither
};

// A large segment at `address`, and what of it may move, in order: the first is needed last.
SegmentInfo segment(std::uint64_t address, const std::vector<Part>& parts,
                    std::vector<Movable>& movable) {
  SegmentInfo one{.address = address, .size = {}, .is_large = true, .blocks = {}};
  for (const Part& part : parts) {
    const Bytes size{part.mib * kMiB};
    one.blocks.push_back(
        {.address = address + static_cast<std::uint64_t>(one.size.count),
         .size = size,
         .requested = size,
         .state = part.kind == 'f' ? BlockInfo::State::free : BlockInfo::State::allocated});
    if (part.kind == 'm')
      movable.push_back({.address = one.blocks.back().address,
                         .size = size,
                         .needed = -static_cast<double>(movable.size()),
                         .leave = {}});
    one.size += size;
  }
  return one;
}

TEST(Victims, ArePartOfAStretchWithWhatIsFree) {
  std::vector<Movable> movable;
  const CardNow card{
      .segments = {segment(0x1000000, {{4, 'm'}, {6, 'x'}, {3, 'm'}, {2, 'f'}, {5, 'x'}}, movable)},
      .free = {}};
  EXPECT_THAT(victims(card, movable, {.size = Bytes{5 * kMiB}}), Optional(ElementsAre(1)));
  EXPECT_THAT(victims(card, movable, {.size = Bytes{4 * kMiB}}), Optional(ElementsAre(1)))
      << "3 MiB beside a gap cost less than 4";
}

TEST(Victims, AreFewerBytesBeforeOnesThatAreNeededLast) {
  std::vector<Movable> movable;
  const CardNow card{
      .segments = {segment(0x1000000, {{8, 'm'}, {1, 'x'}, {5, 'm'}, {1, 'x'}, {5, 'm'}}, movable)},
      .free = {}};
  EXPECT_THAT(victims(card, movable, {.size = Bytes{5 * kMiB}}), Optional(ElementsAre(1)));
  EXPECT_THAT(victims(card, movable, {.size = Bytes{6 * kMiB}}), Optional(ElementsAre(0)));
}

TEST(Victims, AreNoneWhereARequestFits) {
  std::vector<Movable> movable;
  const CardNow card{.segments = {segment(0x1000000, {{10, 'm'}, {10, 'f'}}, movable)}, .free = {}};
  EXPECT_THAT(victims(card, movable, {.size = Bytes{10 * kMiB}}), Optional(IsEmpty()));
  const CardNow empty{.segments = {}, .free = Bytes{32 * kMiB}};
  EXPECT_THAT(victims(empty, {}, {.size = Bytes{32 * kMiB}}), Optional(IsEmpty()));
}

TEST(Victims, GiveWholeSegmentsBackForOneThatIsLarger) {
  std::vector<Movable> movable;
  const CardNow card{.segments = {segment(0x1000000, {{20, 'm'}}, movable),
                                  segment(0x4000000, {{10, 'm'}, {10, 'm'}}, movable),
                                  segment(0x8000000, {{10, 'm'}, {10, 'x'}}, movable)},
                     .free = {}};
  EXPECT_THAT(victims(card, movable, {.size = Bytes{40 * kMiB}}),
              Optional(UnorderedElementsAre(0, 1, 2)));
  EXPECT_EQ(victims(card, movable, {.size = Bytes{42 * kMiB}}), std::nullopt);
}

TEST(Victims, OfAnotherStreamAreOnlyWholeSegments) {
  std::vector<Movable> movable;
  SegmentInfo other = segment(0x1000000, {{10, 'm'}, {10, 'f'}}, movable);
  other.stream = 7;
  const CardNow card{.segments = {other}, .free = {}};
  EXPECT_THAT(victims(card, movable, {.size = Bytes{2 * kMiB}, .stream = 7}), Optional(IsEmpty()));
  EXPECT_THAT(victims(card, movable, {.size = Bytes{2 * kMiB}}), Optional(ElementsAre(0)));
}

TEST(Victims, OfAnExpandableSegmentArePages) {
  std::vector<Movable> movable;
  SegmentInfo large =
      segment(0x1000000, {{10, 'x'}, {10, 'f'}, {12, 'f'}, {8, 'm'}, {20, 'x'}}, movable);
  large.is_expandable = true;
  const CardNow card{.segments = {large}, .free = {}};
  // 1 MiB comes from the small pool, which gets the page of 20 MiB.
  EXPECT_THAT(victims(card, movable, {.size = Bytes{kMiB}}), Optional(ElementsAre(0)));
}

}  // namespace
}  // namespace headroom::memory
