// State of one process: locks, threads, registries. A child of fork() has none of its parent's threads, and what they
// held stays locked in it for ever. So the child begins with a new State, and leaves the inherited one where it lies:
// neither used, nor waited for, nor destroyed. Made when the library is loaded, because a function's own static would
// be made under a lock that a fork could leave behind too.
#pragma once

#include <pthread.h>

namespace sluice {

template <class State>
class PerProcess {
 public:
  static State& get() { return *one_; }

 private:
  static State* make() {
    // The child has one thread then, and a working allocator.
    pthread_atfork(nullptr, nullptr, [] { one_ = new State; });
    return new State;
  }

  static inline State* one_ = make();
};

}  // namespace sluice
