#include "kernels/linking/link_table.h"

#include <utility>

namespace sluice {

void LinkEntry::fail(LinkFault why, std::string text, Clock::time_point now) {
  error = std::move(text);
  not_before = (now + LinkTable::kRest).time_since_epoch().count();
  fault = why;
}

bool LinkEntry::rests(Clock::time_point now) const {
  return fault != LinkFault::none && now.time_since_epoch().count() < not_before;
}

std::shared_ptr<LinkEntry> LinkTable::entry(std::string_view key) {
  {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end()) return found->second;
  }
  const std::unique_lock lock(mutex_);
  if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
  if (entries_.size() >= most_unlinked_ + static_cast<std::size_t>(linked_)) forget_unlinked();
  return entries_.emplace(std::string(key), std::make_shared<LinkEntry>()).first->second;
}

// A held entry may be being linked. Nobody else can take hold of one while the table is locked.
void LinkTable::forget_unlinked() {
  std::erase_if(entries_, [](const auto& item) {
    const std::shared_ptr<LinkEntry>& entry = item.second;
    return entry.use_count() == 1 && entry->kernel == nullptr;
  });
}

bool LinkTable::reserve() {
  int linked = linked_;
  while (linked < limit_) {
    if (linked_.compare_exchange_weak(linked, linked + 1)) return true;
  }
  return false;
}

std::size_t LinkTable::size() const {
  const std::shared_lock lock(mutex_);
  return entries_.size();
}

}  // namespace sluice
