// A CUDA device with three non-blocking streams of its own: not shared with torch's pool of 32 and not ordered by the
// legacy default stream.
//
// Functions that take a device, and all of the driver's, must be called while that device is current: the caller can
// restore the former device without making a context on it, which cudaSetDevice would.
#pragma once

#include <memory>
#include <string>

#include "kernels/transfer/driver.h"

namespace sluice::transfer {

// The first `timed` events take times. Null if the device cannot be used; `error` then says why.
std::unique_ptr<Driver> make_cuda_driver(int device, int events, int timed, std::string& error);

// An unused non-blocking stream on the device; null if none could be created. Streams are reused, never destroyed:
// torch's allocator keeps blocks of memory for a stream for the life of the process.
void* take_stream(int device, std::string& error);
void give_stream_back(int device, void* stream);

// Pins memory in place and unpins it. An empty text is success. A range inside a registered range adds a user to
// that range. Unpinning waits for all devices that the process uses: their copies may use the memory.
std::string register_host(void* address, std::int64_t bytes, bool read_only);
std::string unregister_host(void* address, std::int64_t bytes);

// `preferred` if the process uses it, else the first device that it uses; `preferred` if it uses none.
int used_device(int preferred);

// Device attributes that determine what can overlap, as JSON.
std::string device_abilities(int device);

}  // namespace sluice::transfer
