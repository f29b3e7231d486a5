// What a thread keeps for itself, for code that may run when the thread's thread_local objects are
// gone: an operator in the destructor of a global object, after main() has returned.
#pragma once

namespace headroom::sim::detail {

// The thread's own; null from its end on. One for each type.
template <typename Kept>
Kept* of_thread() {
  thread_local constinit bool ended = false;  // has no destructor, so it is there to the last
  struct Owner {
    Kept kept;
    ~Owner() { ended = true; }
  };
  if (ended) return nullptr;
  thread_local Owner owner;
  return &owner.kept;
}

}  // namespace headroom::sim::detail
