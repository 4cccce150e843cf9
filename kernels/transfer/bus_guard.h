// Reading a memory-mapped file that was truncated raises SIGBUS, which would end the process. A guard returns false
// instead.
#pragma once

namespace sluice::transfer {

// Runs `function(context)`; false if it touched memory that its file no longer has, which leaves it at that point. It
// must hold nothing that a destructor releases. The process's handler is replaced meanwhile and then restored; a SIGBUS
// of another thread goes to it.
bool guarded(void (*function)(void*), void* context);

}  // namespace sluice::transfer
