// An observer of a card: called for every operator before it runs there, and for every event in the
// card's allocator.
//
// Threads: on_operator() runs on the thread that runs the operator, several at a time. on_event()
// runs under the card's lock, one at a time, on the thread that caused the event: there an observer
// must not touch the card. on_request() runs before that thread takes the lock.
#pragma once

#include <cstddef>
#include <string_view>

#include "headroom/allocator/caching_allocator.h"

namespace c10 {
struct IValue;
}

namespace headroom::sim {

struct OperatorCall {
  std::string_view name;  // "aten::mm"; lives as long as the process
  const c10::IValue* arguments = nullptr;
  std::size_t argument_count = 0;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_operator(const OperatorCall& call) = 0;
  virtual void on_request() {}
  // Something was assumed in place of unknown values (Card::assume_true); `what` in words. On the
  // thread that runs the operator.
  virtual void on_assumption(std::string_view) {}
  virtual void on_event(const allocator::AllocatorEvent& allocator_event) = 0;
};

}  // namespace headroom::sim
