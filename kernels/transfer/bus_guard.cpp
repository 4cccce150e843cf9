#include "kernels/transfer/bus_guard.h"

#include <csetjmp>
#include <csignal>
#include <mutex>

#include "kernels/common/per_process.h"

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
struct Installing {
  std::mutex mutex;
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

}  // namespace

void install_bus_guard() {
  const std::lock_guard lock(PerProcess<Installing>::get().mutex);
  struct sigaction current;
  if (sigaction(SIGBUS, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_bus_error) return;
  former = current;
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

bool guarded(void (*function)(void*), void* context) {
  sigjmp_buf here;
  sigjmp_buf* const outer = armed;
  if (sigsetjmp(here, kRestoreMask) != 0) {
    armed = outer;
    return false;
  }
  armed = &here;
  function(context);
  armed = outer;
  return true;
}

}  // namespace sluice::transfer
