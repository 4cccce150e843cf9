// Linked kernels on disk, for the next process. Any number of processes may share a directory: an entry is written to a
// separate file and renamed into place, so a reader sees all of it or nothing. Entries that are damaged, or that belong
// to another key, count as absent; without a usable directory only the entries are lost.
//
// The directory may hold other things: only files with the cache's names are counted, read or removed. private_file.h
// says which directories and files are safe to use.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

class DiskCache {
 public:
  // `directory` need not exist; if it is empty nothing is kept. `limit` bounds the bytes of all entries.
  DiskCache(const std::string& directory, unsigned long long limit);

  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view data) const;

  const std::string& directory() const { return directory_; }
  // Why nothing is kept, as far as can be seen without writing, or why the last entry could not be written.
  std::string problem() const;

  // $SLUICE_CACHE_DIR, else sluice/ in the user's cache directory; empty if the user has none, or it is set empty.
  static std::string default_directory();

 private:
  std::string write_entry(std::string_view key, std::string_view data) const;
  void make_room(int directory, unsigned long long bytes) const;

  std::string directory_;  // absolute path: independent of later changes of the working directory
  unsigned long long limit_;
  mutable std::mutex mutex_;
  mutable std::string write_problem_;
};

}  // namespace sluice
