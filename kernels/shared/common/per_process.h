// State of one process: locks, threads, registries. A child of fork() has none of its parent's threads, and their locks
// stay locked in it. So the child starts with a new State, and leaves the inherited one untouched: neither used, nor
// waited for, nor destroyed. Made when the library is loaded, because a function's static would be made under a lock
// that a fork could leave locked too.
#pragma once

#include <pthread.h>

namespace sluice {

template <class State>
class PerProcess {
 public:
  static State& get() { return *one_; }

 private:
  static State* make() {
    // The child has only one thread then, and a working allocator.
    pthread_atfork(nullptr, nullptr, [] { one_ = new State; });
    return new State;
  }

  static inline State* one_ = make();
};

}  // namespace sluice
