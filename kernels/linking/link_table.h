// Which chains are linked, which could not be, and which may be tried again. Knows nothing of CUDA.
//
// A linked kernel stays for the life of the process: a captured graph may launch it whenever it likes, and nobody says
// when the last one is gone. So their number is bounded, and past the bound chains run interpreted. What is known of
// other chains (how often they were seen, why they failed) may be forgotten at any time, and is when it becomes much.
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
  rejected,       // NVRTC refused the source, which is the user's fault where it has a stage of theirs
  failed,         // the chain cannot be linked in this process
  postponed,      // something that may have passed by the next time
  out_of_memory,  // the same, and what it was
};

constexpr bool is_lasting(LinkFault fault) { return fault == LinkFault::rejected || fault == LinkFault::failed; }

enum class Prelinked : int { unknown, no, yes };  // whether it comes linked with the library

// One chain in one kernel for one architecture. What is not atomic belongs to the holder of `mutex`, but for `error`
// once `fault` is a lasting one.
struct LinkEntry {
  using Clock = std::chrono::steady_clock;

  std::mutex mutex;
  std::atomic<std::uint64_t> loaded = 0;  // a bit a device
  std::atomic<LinkFault> fault = LinkFault::none;
  std::atomic<int> calls = 0;
  std::atomic<Prelinked> prelinked = Prelinked::unknown;
  std::atomic<Clock::rep> not_before = 0;  // when to try again after a fault that is not lasting
  std::atomic<const void*> kernel = nullptr;
  void* library = nullptr;  // that the kernel is of
  std::string cubin;        // compiled, and not on any device yet
  std::string error;

  void fail(LinkFault why, std::string text, Clock::time_point now);
  // Whether a try now would come too soon after one that failed.
  bool rests(Clock::time_point now) const;
};

class LinkTable {
 public:
  // A fault that may pass is given this long before a chain that has an interpreter asks again: a failed try costs
  // about a millisecond, or, where it was the compiler's, a tenth of a second.
  static constexpr std::chrono::seconds kRest{1};

  LinkTable(int limit, std::size_t most_unlinked) : limit_(limit), most_unlinked_(most_unlinked) {}

  std::shared_ptr<LinkEntry> entry(std::string_view key);

  // Counts one more linked kernel, or returns false where that would be one too many.
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
    using is_transparent = void;  // to look for a view without making a string of it
    std::size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };
  std::unordered_map<std::string, std::shared_ptr<LinkEntry>, Hash, std::equal_to<>> entries_;
};

}  // namespace sluice
