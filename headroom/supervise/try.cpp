#include "headroom/supervise/try.h"

#include <cstring>

#include "headroom/base/text.h"

namespace headroom::supervise {

bool Try::out_of_memory() const {
  return is_out_of_memory(judgement);
}

std::string cause_of(const Try& one) {
  const oom::Judgement& judgement = one.judgement;
  const std::string text = "out of memory (" + judgement.kind + ")";
  const bool is_shown = one.end.last_output.find(judgement.evidence) != std::string::npos;
  return is_shown ? text : text + ": " + judgement.evidence;
}

std::vector<std::string> remarks(const job::JobEnd& end) {
  std::vector<std::string> sentences;
  if (end.unwritten_errno)
    sentences.push_back("lost " + counted(end.unwritten_bytes, "byte") +
                        " of its output: " + std::strerror(*end.unwritten_errno));
  if (!end.stuck.empty())
    sentences.push_back("stuck in the kernel, cannot be killed and keeps its memory: " +
                        join(end.stuck, "; "));
  if (!end.ended_rest.empty())
    sentences.push_back("ended processes that it left behind: " + join(end.ended_rest, "; "));
  return sentences;
}

oom::Forensics forensics_of(const std::vector<Try>& tries) {
  const Try& last = tries.back();
  oom::Forensics forensics;
  forensics.judgement = last.judgement;
  forensics.cards = last.cards_at_end;
  forensics.samples = last.samples;
  forensics.limit = last.limit;
  for (const Try& one : tries)
    forensics.tries.push_back({.batch = one.batch,
                               .accumulation = one.accumulation,
                               .out_of_memory = one.out_of_memory(),
                               .peak = one.peak});
  return forensics;
}

}  // namespace headroom::supervise
