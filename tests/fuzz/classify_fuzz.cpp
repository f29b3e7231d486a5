// The detector of out-of-memory under libFuzzer, from the texts of tests/oom/corpus.jsonl: any
// bytes are a log. A judgement out of its bounds is a fault, and so is anything thrown.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "headroom/oom/classify.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // NOLINTNEXTLINE: bytes are chars
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const headroom::oom::Judgement judgement = headroom::oom::classify(
      {.text = text, .type_names = {}, .exit_code = 1, .signal = {}, .host = {}});
  if (!(judgement.confidence >= 0 && judgement.confidence <= 1)) std::abort();
  if (judgement.evidence.size() > 1000) std::abort();
  if (judgement.asked && judgement.asked->count < 0) std::abort();
  return 0;
}
