#include "kernels/transfer/bus_guard.h"

#include <csetjmp>
#include <csignal>
#include <mutex>

#include "kernels/shared/common/per_process.h"

namespace sluice::transfer {
namespace {

// With SA_NODEFER the signal is not blocked, so there is no mask to restore. The thread sanitizer's own handler, which
// calls ours, blocks all signals.
#ifdef __SANITIZE_THREAD__
constexpr int kRestoreMask = 1;
#else
constexpr int kRestoreMask = 0;
#endif

thread_local sigjmp_buf* armed = nullptr;
thread_local bool forwarding = false;
struct sigaction former;

// A child of fork() has none of the threads that run guards, and starts with the former handler.
struct Guards {
  Guards();
  std::mutex mutex;
  int running = 0;
};

void on_bus_error(int signal, siginfo_t* info, void* context) {
  if (armed != nullptr) siglongjmp(*armed, 1);
  const bool detailed = (former.sa_flags & SA_SIGINFO) != 0 && former.sa_sigaction != nullptr;
  // A handler that raises the signal again returns here: then it ends the process, as it would without this handler.
  if (forwarding || (!detailed && (former.sa_handler == SIG_DFL || former.sa_handler == SIG_IGN))) {
    std::signal(signal, SIG_DFL);
    return;
  }
  forwarding = true;
  if (detailed) {
    former.sa_sigaction(signal, info, context);
  } else {
    former.sa_handler(signal);
  }
  forwarding = false;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_bus_error;
}

void restore() {
  struct sigaction current;
  if (sigaction(SIGBUS, nullptr, &current) == 0 && is_ours(current)) sigaction(SIGBUS, &former, nullptr);
}

Guards::Guards() { restore(); }

// Installs the handler unless it is installed; others may have replaced it since the last guard began.
void begin_guard() {
  Guards& guards = PerProcess<Guards>::get();
  const std::lock_guard lock(guards.mutex);
  ++guards.running;
  struct sigaction current;
  if (sigaction(SIGBUS, nullptr, &current) != 0 || is_ours(current)) return;
  former = current;
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

// The last guard restores the former handler, unless ours was replaced meanwhile.
void end_guard() {
  Guards& guards = PerProcess<Guards>::get();
  const std::lock_guard lock(guards.mutex);
  if (--guards.running == 0) restore();
}

}  // namespace

bool guarded(void (*function)(void*), void* context) {
  sigjmp_buf here;
  begin_guard();
  if (sigsetjmp(here, kRestoreMask) != 0) {
    armed = nullptr;
    end_guard();
    return false;
  }
  armed = &here;
  function(context);
  armed = nullptr;
  end_guard();
  return true;
}

}  // namespace sluice::transfer
