// A CUDA device: three non-blocking streams of its own, so that none is shared with torch's pool of 32 or ordered by
// the legacy default stream.
#pragma once

#include <memory>
#include <string>

#include "kernels/transfer/driver.h"

namespace sluice::transfer {

// The first `timed` of its events take times. Null where the device cannot be used; `error` then says why.
std::unique_ptr<Driver> make_cuda_driver(int device, int events, int timed, std::string& error);

// A non-blocking stream on the device that nobody else has; null where none could be made. Streams are never destroyed
// but given to the next who asks: torch's allocator keeps blocks of memory for a stream as long as the process lives.
void* take_stream(int device, std::string& error);
void give_stream_back(int device, void* stream);

// Page-locks memory in place and lets it go. An empty text is success. A range inside one that is locked already counts
// another user of that one. Letting go waits for all devices that the process uses: their copies may be at the memory.
std::string register_host(void* address, std::int64_t bytes, bool read_only);
std::string unregister_host(void* address, std::int64_t bytes);

// Attributes that say what can overlap, as JSON.
std::string device_abilities(int device);

}  // namespace sluice::transfer
