// Linked kernels on disk, for the next process. Any number of processes may share a directory: an entry is written to a
// file of its own and renamed into place, so a reader sees all of it or nothing. Entries that are damaged, or that belong
// to another key, are treated as absent; a directory that cannot be read or written costs the entries and nothing else.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

class DiskCache {
 public:
  // `directory` need not exist; where it is empty nothing is kept. `limit` bounds the bytes of all entries.
  DiskCache(std::string directory, unsigned long long limit);

  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view data) const;

  const std::string& directory() const { return directory_; }

  // $SLUICE_CACHE_DIR, else sluice/ in the user's cache directory; empty where the user has none, or it is set empty.
  static std::string default_directory();

 private:
  void make_room(unsigned long long bytes) const;

  std::string directory_;
  unsigned long long limit_;
};

}  // namespace sluice
