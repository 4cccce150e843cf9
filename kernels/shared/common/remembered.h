// A thread's cache of a pure function's results: calls repeat with few arguments.
#pragma once

#include <cstddef>
#include <memory>

namespace sluice {

// A hash of some of a key's numbers.
template <class... Numbers>
constexpr std::size_t hash_of(Numbers... numbers) {
  std::size_t hash = 0;
  ((hash = (hash ^ static_cast<std::size_t>(numbers)) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29), ...);
  return hash;
}

// `make()`, or what it returned to this thread for an equal key. A bucket holds one key, so the reference is good until
// the next call. `make` may throw. `Key` is what is kept of a `Given`, with which it compares.
template <class Value, class Key, class Given, class Make>
const Value& remembered(const Given& key, std::size_t hash, const Make& make) {
  struct Bucket {
    bool is_set = false;
    Key key;
    Value value;
  };
  constexpr std::size_t kBuckets = 32;
  thread_local const std::unique_ptr<Bucket[]> buckets(new Bucket[kBuckets]);
  Bucket& bucket = buckets[hash % kBuckets];
  if (!bucket.is_set || !(bucket.key == key)) {
    bucket.is_set = false;
    bucket.value = make();
    bucket.key = Key(key);
    bucket.is_set = true;
  }
  return bucket.value;
}

}  // namespace sluice
