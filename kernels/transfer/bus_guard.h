// Reading a memory-mapped file that was truncated raises SIGBUS, which would end the process. A guard returns false
// instead.
#pragma once

namespace sluice::transfer {

// Runs `function(context)`; false if it touched memory that its file no longer has, which leaves it at that point. It
// must hold nothing that a destructor releases. Any other SIGBUS goes to the handler that was installed before.
bool guarded(void (*function)(void*), void* context);

// Installs the handler. Called before each use, because others may replace it.
void install_bus_guard();

}  // namespace sluice::transfer
