// The engine's interface to a device: three streams, events, copies, pinned memory. Two implementations:
// cuda_driver.cpp, and host_driver.cpp, whose streams are threads, for machines without a GPU and for tests.
//
// Calls return false when they fail; error() then says why. None throws. Events are numbers below events().
#pragma once

#include <cstdint>
#include <string>

namespace sluice::transfer {

enum class Stream : int { h2d = 0, compute = 1, d2h = 2 };
inline constexpr int kStreams = 3;

// Rows of `span` contiguous bytes, with a pitch for each side; one row is a contiguous copy.
struct DeviceCopy {
  char* target;
  const char* source;
  std::int64_t span, rows, target_pitch, source_pitch;
};

class Driver {
 public:
  virtual ~Driver() = default;

  // Called by each thread of the engine before its first other call.
  virtual void attach() {}
  // Whether the device's memory is the host's, so that threads may copy into it.
  virtual bool shares_memory() const = 0;
  virtual int node() const { return -1; }
  virtual void* native_stream(Stream stream) const = 0;

  virtual bool record(Stream stream, int event) = 0;
  virtual bool wait(Stream stream, int event) = 0;           // the stream waits; a host's compute stream is the caller
  virtual bool record_foreign(void* stream, int event) = 0;  // on the caller's stream
  virtual bool make_wait(void* stream, int event) = 0;       // the caller's stream waits
  virtual bool complete(int event) = 0;                      // true for an event that was never recorded
  virtual bool synchronize(int event) = 0;                   // this thread waits
  virtual double seconds(int from, int to) = 0;              // between two complete events
  virtual bool copy(Stream stream, const DeviceCopy& copy) = 0;
  virtual bool delay(Stream stream, int microseconds) = 0;  // for tests: the stream does nothing for that long

  // Pinned memory near the device, whole pages; null on failure.
  virtual char* allocate_pinned(std::int64_t bytes) = 0;
  virtual void free_pinned(char* memory, std::int64_t bytes) = 0;

  virtual std::string error() const = 0;
};

}  // namespace sluice::transfer
