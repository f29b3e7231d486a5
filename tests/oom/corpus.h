// The project's texts of failures (tests/oom/README.md), and what counts as right.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/oom/classify.h"

namespace headroom::testing {

struct FailureText {
  std::string id, label, kind, text, source;
  std::optional<int> exit_code;
};

[[nodiscard]] const std::vector<FailureText>& failure_texts();

// The half that rules may be written for; the other one only measures them.
[[nodiscard]] bool is_held_out(const FailureText& failure);

[[nodiscard]] bool is_right(const FailureText& failure, const oom::Judgement& judgement);
// An out-of-memory seen where there is none: a bug would be retried.
[[nodiscard]] bool is_false_alarm(const FailureText& failure, const oom::Judgement& judgement);

}  // namespace headroom::testing
