// Reading a memory-mapped file that was cut short raises SIGBUS, which would end the process. Inside a guard it is a
// value.
#pragma once

namespace sluice::transfer {

// Runs `function(context)`; false where it touched memory that its file no longer has, and was left at that point. It
// may hold nothing that a destructor must release. Other SIGBUS of the process go where they went before.
bool guarded(void (*function)(void*), void* context);

// Puts the handler in place. Called before each use, because others may replace it.
void install_bus_guard();

}  // namespace sluice::transfer
