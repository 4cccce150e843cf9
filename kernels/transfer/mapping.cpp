#include "kernels/transfer/mapping.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

namespace sluice::transfer {
namespace {

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

struct Pages {
  void* begin;
  std::size_t bytes;
};

// The whole pages inside a range.
Pages inner_pages(const void* address, std::int64_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + static_cast<std::uintptr_t>(bytes)) / page * page;
  return {reinterpret_cast<void*>(first), last > first ? last - first : 0};
}

struct Range {
  std::uintptr_t first, last;
};

Range range_of(const void* address, std::int64_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  return {first, first + static_cast<std::uintptr_t>(std::max<std::int64_t>(bytes, 1))};
}

// A type of <linux/fs.h> since Linux 6.11, which older headers lack.
struct MappingQuery {
  std::uint64_t size = sizeof(MappingQuery), query_flags, query_addr;
  std::uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  std::uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  std::uint64_t vma_name_addr, build_id_addr;
};
#define SLUICE_QUERY_MAPPING _IOWR('f', 17, MappingQuery)
constexpr std::uint64_t kWritable = 2, kShared = 8, kCoveringOrNext = 16;

// The mappings that a range overlaps, one after another.
class Mappings {
 public:
  Mappings(std::uintptr_t first, std::uintptr_t last) : first_(first), last_(last) {}

  void add(std::uintptr_t begin, std::uintptr_t end, bool shared, bool writable, bool file) {
    if (end <= first_ || begin >= last_) return;
    Mapping kind = shared ? Mapping::shared_file : Mapping::private_file;
    if (!file) kind = Mapping::anonymous;
    info_.kind = !known_ || kind == info_.kind ? kind : Mapping::private_file;
    info_.writable = info_.writable && writable;
    known_ = true;
  }
  const MappingInfo& info() const { return info_; }

 private:
  const std::uintptr_t first_, last_;
  MappingInfo info_;
  bool known_ = false;
};

// A few microseconds; none if this Linux cannot do it.
std::optional<MappingInfo> queried(std::uintptr_t first, std::uintptr_t last) {
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  std::optional<Mappings> found(std::in_place, first, last);
  for (std::uintptr_t at = first; at < last;) {
    MappingQuery query{};
    query.size = sizeof(query);
    query.query_flags = kCoveringOrNext;
    query.query_addr = at;
    if (ioctl(file, SLUICE_QUERY_MAPPING, &query) != 0) {
      if (errno != ENOENT) found.reset();  // else there is none from here on
      break;
    }
    found->add(query.vma_start, query.vma_end, (query.vma_flags & kShared) != 0, (query.vma_flags & kWritable) != 0,
               query.inode != 0);
    at = query.vma_end;
  }
  close(file);
  return found.has_value() ? std::optional(found->info()) : std::nullopt;
}

}  // namespace

MappingInfo mapping_by_text(const void* address, std::int64_t bytes) {
  const auto [first, last] = range_of(address, bytes);
  std::ifstream maps("/proc/self/maps");
  Mappings found(first, last);
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, inode = 0;
    char mode[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %lu", &begin, &end, mode, &inode) != 4) continue;
    found.add(begin, end, mode[3] == 's', mode[1] == 'w', inode != 0);
  }
  return found.info();
}

MappingInfo mapping_of(const void* address, std::int64_t bytes) {
  const auto [first, last] = range_of(address, bytes);
  const std::optional<MappingInfo> info = queried(first, last);
  return info.has_value() ? *info : mapping_by_text(address, bytes);
}

void drop_behind(const void* address, std::int64_t bytes, Mapping kind) {
  if (kind == Mapping::anonymous) return;
  const Pages pages = inner_pages(address, bytes);
  if (pages.bytes == 0) return;
  // Advice only: if the system ignores it, pages stay until it needs them.
  (void)madvise(pages.begin, pages.bytes, kind == Mapping::shared_file ? MADV_DONTNEED : MADV_PAGEOUT);
}

void advise_huge(void* address, std::int64_t bytes) {
  const Pages pages = inner_pages(address, bytes);
  if (pages.bytes != 0) (void)madvise(pages.begin, pages.bytes, MADV_HUGEPAGE);
}

}  // namespace sluice::transfer
