#include "headroom/oom/forensics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/text.h"

namespace headroom::oom {
namespace {

using namespace headroom::literals;
using ::testing::HasSubstr;

Forensics trainer_beside_a_server() {
  Forensics forensics;
  forensics.judgement = {.verdict = Verdict::gpu_oom,
                         .kind = "cuda_caching_allocator",
                         .confidence = 0.98,
                         .evidence =
                             "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                             "2.00 GiB. GPU 0 has a total capacity of 24.00 GiB",
                         .asked = 2_GiB,
                         .total = 24_GiB,
                         .free = 1_GiB,
                         .device = 0};
  CardSample card{.index = 0,
                  .uuid = "GPU-1",
                  .name = "NVIDIA RTX 4090",
                  .memory = {.total = 24_GiB, .used = 23_GiB, .free = 1_GiB, .reserved = {}},
                  .holders = {}};
  card.holders.push_back(
      {.pid = 12, .user = "bob", .command = "python serve.py", .used = 6_GiB, .of_the_job = false});
  card.holders.push_back({.pid = 34,
                          .user = "ann",
                          .command = "python train.py --batch-size 64",
                          .used = 16_GiB,
                          .of_the_job = true});
  forensics.cards = {card};
  for (int i = 0; i <= 120; ++i)
    forensics.samples.push_back({.before_end = Seconds(120 - i),
                                 .used = 6_GiB + Bytes{i * (152_MiB).count},
                                 .job_used = Bytes{i * (136_MiB).count}});
  forensics.limit = 17_GiB;
  forensics.tries = {{.batch = 16, .accumulation = 4, .out_of_memory = false, .peak = 9_GiB},
                     {.batch = 64, .accumulation = 1, .out_of_memory = true, .peak = 16_GiB}};
  forensics.changes = {{"--batch-size", 64, 16}, {"--accum", 1, 4}};
  return forensics;
}

TEST(Forensics, TellsWhatWasAskedWhoHeldTheRestAndWhatToChange) {
  const std::string text = describe(trainer_beside_a_server());
  EXPECT_THAT(text,
              HasSubstr("Requested 2.00 GiB; 1.00 GiB of 24.00 GiB was free; the job may use"));
  EXPECT_THAT(text, HasSubstr("16.00 GiB  this job: PID 34 python train.py --batch-size 64"));
  EXPECT_THAT(text, HasSubstr("6.00 GiB  PID 12 of bob python serve.py"));
  EXPECT_THAT(text, HasSubstr("1.00 GiB  no process shown"));
  EXPECT_THAT(text, HasSubstr("Largest that fitted: batch 16 x 4 used 9.00 GiB."));
  EXPECT_THAT(text, HasSubstr("To change: --batch-size 64 -> 16, --accum 1 -> 4"));
}

TEST(Forensics, LongSentencesAreBrokenAndNotCut) {
  Forensics forensics = trainer_beside_a_server();
  forensics.changes.clear();
  forensics.why_no_change =
      "out of memory, and with a smaller --batch-size alone the effective batch would change; map "
      "the accumulation, too, or allow it with --let-batch-change";
  EXPECT_THAT(describe(forensics), HasSubstr("or allow it with\n    --let-batch-change\n"));
}

// It ended at "24.00 GiB usable, sh...": before what the card lacked and what to try.
TEST(Forensics, TheReasonIsShownToItsEnd) {
  Forensics forensics = trainer_beside_a_server();
  forensics.changes.clear();
  forensics.why_no_change =
      "out of memory, and nothing is mapped that may be changed: try --map \"--batch-size=batch\" "
      "--map \"--accum=accumulation\"; more memory is not usable either: need 26.00 GiB; best is "
      "GPU 0 with 24.00 GiB usable, short by 2.00 GiB; no card has that much even when empty";
  EXPECT_THAT(describe(forensics), HasSubstr("when empty\n"));
}

// A job that ended before its first sample showed "-0 s         0 B".
TEST(Forensics, SamplesOfNothingAreNoTimeline) {
  Forensics forensics = trainer_beside_a_server();
  forensics.samples = {{.before_end = Seconds(0), .used = Bytes{0}, .job_used = Bytes{0}}};
  EXPECT_THAT(describe(forensics), ::testing::Not(HasSubstr("Memory in use")));
}

TEST(Forensics, NameNoBatchWithoutAMappedArgument) {
  Forensics forensics = trainer_beside_a_server();
  forensics.tries = {{.batch = {}, .accumulation = {}, .out_of_memory = true, .peak = 16_GiB}};
  const std::string text = describe(forensics);
  EXPECT_THAT(text, HasSubstr("This try: used 16.00 GiB and did not fit; 1 try so far."));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("batch 1")));
  EXPECT_TRUE(document(forensics)["tries"][0]["batch"].is_null());
}

TEST(Forensics, IsAtMostTwentyTwoLinesOfEightyColumns) {
  Forensics forensics = trainer_beside_a_server();
  forensics.judgement.evidence = std::string(500, 'x');
  for (int i = 0; i < 50; ++i) forensics.cards[0].holders.push_back(forensics.cards[0].holders[0]);
  forensics.cards.resize(8, forensics.cards[0]);
  const std::string text = describe(forensics);
  EXPECT_TRUE(text.ends_with("\n"));
  const auto lines = split(text.substr(0, text.size() - 1), '\n');
  EXPECT_LE(lines.size(), 22U);
  EXPECT_GE(lines.size(), 10U);
  for (const std::string_view line : lines) EXPECT_LE(line.size(), 80U) << line;
}

TEST(Forensics, TheTimelineEndsWithTheLastSample) {
  const std::string text = describe(trainer_beside_a_server());
  EXPECT_THAT(text, HasSubstr("120 s    6.00 GiB  ++++++++++\n"));
  EXPECT_THAT(text, HasSubstr("at the end   23.81 GiB  ##########################+++++"));
}

TEST(Forensics, SaysWhichFiguresAreUnknown) {
  Forensics forensics;
  forensics.judgement.verdict = Verdict::host_oom;
  forensics.judgement.kind = "kernel";
  forensics.why_no_change = "the batch is 1 already.";
  const std::string text = describe(forensics);
  EXPECT_THAT(text, HasSubstr("Out of the host's memory"));
  EXPECT_THAT(text, HasSubstr("The size of the request is unknown"));
  EXPECT_THAT(text, HasSubstr("Nothing to change: the batch is 1 already."));
}

TEST(Forensics, DocumentSaysTheSame) {
  const Json json = document(trainer_beside_a_server());
  EXPECT_EQ(json["judgement"]["verdict"], "gpu_oom");
  EXPECT_EQ(json["judgement"]["asked_bytes"], (2_GiB).count);
  EXPECT_EQ(json["cards"][0]["holders"][1]["of_the_job"], true);
  EXPECT_EQ(json["samples"].size(), 121U);
  EXPECT_EQ(json["largest_fit"]["batch"], 16);
  EXPECT_EQ(json["changes"][1]["to"], 4);
}

TEST(Forensics, UnknownIsNull) {
  const Json json = document(Judgement{});
  for (const char* key : {"asked_bytes", "total_bytes", "free_bytes", "device"})
    EXPECT_TRUE(json[key].is_null()) << key;
}

TEST(Forensics, ACardIsTakenFromASample) {
  gpu::Card card;
  card.index = 2;
  card.memory = gpu::CardMemory{.total = 8_GiB, .used = 5_GiB, .free = 3_GiB, .reserved = {}};
  gpu::GpuProcess process;
  process.pid = 34;
  process.used = 5_GiB;
  card.processes = {{process}};
  const CardSample then = card_sample(card, {34});
  EXPECT_EQ(then.index, 2);
  ASSERT_EQ(then.holders.size(), 1U);
  EXPECT_TRUE(then.holders[0].of_the_job);
}

}  // namespace
}  // namespace headroom::oom
