#include "tests/oom/corpus.h"

#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"

namespace headroom::testing {
namespace {

FailureText from(const Json& json) {
  FailureText failure{.id = json.at("id"),
                      .label = json.at("label"),
                      .kind = json.at("kind"),
                      .text = json.at("text"),
                      .source = json.at("source"),
                      .exit_code = {}};
  if (!json.at("exit_code").is_null()) failure.exit_code = json.at("exit_code").get<int>();
  return failure;
}

std::vector<FailureText> read() {
  const std::string file = read_input(std::string(HEADROOM_SOURCE_DIR) + "/tests/oom/corpus.jsonl");
  std::vector<FailureText> failures;
  for (const std::string_view line : split(file, '\n'))
    if (!line.empty()) failures.push_back(from(parse_json(line, "corpus.jsonl")));
  return failures;
}

}  // namespace

const std::vector<FailureText>& failure_texts() {
  static const std::vector<FailureText> failures = read();
  return failures;
}

bool is_held_out(const FailureText& failure) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : failure.id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return (hash >> 16U & 1U) == 1;
}

bool is_right(const FailureText& failure, const oom::Judgement& judgement) {
  using oom::Verdict;
  const Verdict verdict = judgement.verdict;
  const bool memory = verdict == Verdict::gpu_oom || verdict == Verdict::host_oom;
  if (failure.label == "oom") return verdict == Verdict::gpu_oom;
  if (failure.label == "host_oom") return verdict == Verdict::host_oom;
  if (failure.label == "ambiguous")
    return verdict == Verdict::unknown || (memory && judgement.confidence < oom::kCertain);
  return !memory;
}

bool is_false_alarm(const FailureText& failure, const oom::Judgement& judgement) {
  return (failure.label == "not_oom" || failure.label == "stall") && !is_right(failure, judgement);
}

}  // namespace headroom::testing
