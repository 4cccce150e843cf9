// The chains that are linked, that could not be, and that may be tried again. Independent of CUDA.
//
// A linked kernel stays for the lifetime of the process: a captured graph may launch it at any time, and nothing tells
// when the last such graph is gone. So their number is bounded, and past the bound chains run interpreted. The rest
// (how often chains were seen, why they failed) may be forgotten at any time, and is when it becomes much.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace sluice {

enum class LinkFault : int {
  none,
  rejected,       // NVRTC refused the source: the user's fault if it has a stage of theirs
  failed,         // the chain cannot be linked in this process
  postponed,      // a cause that may have passed by the next time
  out_of_memory,  // the same, by lack of memory
};

constexpr bool is_lasting(LinkFault fault) { return fault == LinkFault::rejected || fault == LinkFault::failed; }

enum class Prelinked : int { unknown, no, yes };  // whether the library contains it linked

// One chain in one kernel for one architecture. Members that are not atomic belong to the holder of `mutex`, except
// `error` once `fault` is permanent.
struct LinkEntry {
  using Clock = std::chrono::steady_clock;

  std::mutex mutex;
  std::atomic<std::uint64_t> loaded = 0;  // a bit per device
  std::atomic<LinkFault> fault = LinkFault::none;
  std::atomic<int> calls = 0;
  std::atomic<Prelinked> prelinked = Prelinked::unknown;
  std::atomic<Clock::rep> not_before = 0;  // time to try again after a temporary fault
  std::atomic<const void*> kernel = nullptr;
  void* library = nullptr;  // the kernel's
  std::string cubin;        // compiled, but on no device yet
  std::string error;

  void fail(LinkFault why, std::string text, Clock::time_point now);
  // Whether a new try would follow a failed one too soon.
  bool rests(Clock::time_point now) const;
};

class LinkTable {
 public:
  // The time between tries of a chain that has an interpreter after a temporary fault: a failed try costs about a
  // millisecond or, in the compiler, a tenth of a second.
  static constexpr std::chrono::seconds kRest{1};

  LinkTable(int limit, std::size_t most_unlinked) : limit_(limit), most_unlinked_(most_unlinked) {}

  std::shared_ptr<LinkEntry> entry(std::string_view key);

  // Counts one more linked kernel, or returns false at the bound.
  bool reserve();
  void give_back() { --linked_; }
  int linked() const { return linked_; }
  int limit() const { return limit_; }
  int set_limit(int limit) { return limit_.exchange(limit); }

  std::size_t size() const;

 private:
  void forget_unlinked();

  std::atomic<int> limit_, linked_ = 0;
  std::size_t most_unlinked_;
  mutable std::shared_mutex mutex_;
  struct Hash {
    using is_transparent = void;  // to look up a view without making a string
    std::size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };
  std::unordered_map<std::string, std::shared_ptr<LinkEntry>, Hash, std::equal_to<>> entries_;
};

}  // namespace sluice
