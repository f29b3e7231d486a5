// A value of each thread, for code that may run when the thread's thread_local objects are gone: an
// operator in the destructor of a global object, after main() has returned.
#pragma once

namespace headroom::sim::detail {

// This thread's value of the type; null once the thread has ended.
template <typename Value>
Value* thread_value() {
  thread_local constinit bool ended = false;  // valid to the last, since it has no destructor
  struct Owner {
    Value value;
    ~Owner() { ended = true; }
  };
  if (ended) return nullptr;
  thread_local Owner owner;
  return &owner.value;
}

}  // namespace headroom::sim::detail
