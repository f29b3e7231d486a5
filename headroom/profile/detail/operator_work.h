// The bytes that one call of an operator reads and writes on a card, for the cost model.
#pragma once

#include <ATen/record_function.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "headroom/forecast/operator_time.h"

namespace headroom::profile::detail {

// The facts in an operator's schema about its tensors.
struct OperatorFacts {
  bool gives_views = false;   // of its arguments, and writes nothing
  std::vector<bool> written;  // arguments
  std::vector<bool> fresh;    // results that are not arguments
};

// Threads: any.
class KnownOperators {
 public:
  // Null for records that are not operators: ranges, nodes of autograd's graph.
  [[nodiscard]] const OperatorFacts* facts_of(const at::RecordFunction& call);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, OperatorFacts> known_;
};

// A call while it runs.
class CallWork {
 public:
  CallWork() = default;
  // In the start callback. The facts must outlive this.
  CallWork(const at::RecordFunction& call, const OperatorFacts& facts);
  // In the end callback. Nothing of a card is used: 0 bytes.
  [[nodiscard]] forecast::OperatorWork finished(const at::RecordFunction& call) &&;

 private:
  const OperatorFacts* facts_ = nullptr;
  forecast::OperatorWork work_;
  double first_bytes_ = 0;  // of the first argument
};

}  // namespace headroom::profile::detail
