#include "kernels/linking/prelinked.h"

#include <optional>

namespace sluice {
namespace {

constexpr std::size_t kHeader = kPrelinkedName + 8;

struct Entry {
  std::string_view name, code;
};

// Removes the first entry of the list; none if the rest is not a whole entry.
std::optional<Entry> take(std::string_view& list) {
  if (list.size() < kHeader) return std::nullopt;
  unsigned long long size = 0;
  for (std::size_t byte = kHeader; byte-- > kPrelinkedName;) size = size << 8 | static_cast<unsigned char>(list[byte]);
  if (size > list.size() - kHeader) return std::nullopt;
  const Entry entry = {list.substr(0, kPrelinkedName), list.substr(kHeader, size)};
  list.remove_prefix(kHeader + size);
  return entry;
}

}  // namespace

std::string prelinked_entry(std::string_view name, std::string_view code) {
  std::string entry(name);
  for (int shift = 0; shift < 64; shift += 8) {
    entry += static_cast<char>(static_cast<unsigned long long>(code.size()) >> shift & 255);
  }
  return entry += code;
}

std::string_view find_prelinked(std::string_view list, std::string_view name) {
  while (const std::optional<Entry> entry = take(list)) {
    if (entry->name == name) return entry->code;
  }
  return {};
}

int count_prelinked(std::string_view list) {
  int count = 0;
  while (take(list).has_value()) ++count;
  return count;
}

}  // namespace sluice
