#include "kernels/transfer/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
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

}  // namespace

MappingInfo mapping_of(const void* address, std::int64_t bytes) {
  std::ifstream maps("/proc/self/maps");
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t last = first + static_cast<std::uintptr_t>(std::max<std::int64_t>(bytes, 1));
  MappingInfo info;
  bool known = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, inode = 0;
    char mode[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %lu", &begin, &end, mode, &inode) != 4) continue;
    if (end <= first || begin >= last) continue;
    Mapping kind = mode[3] == 's' ? Mapping::shared_file : Mapping::private_file;
    if (inode == 0) kind = Mapping::anonymous;
    info.kind = !known || kind == info.kind ? kind : Mapping::private_file;
    info.writable = info.writable && mode[1] == 'w';
    known = true;
  }
  return info;
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
