#include "kernels/linking/disk_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "kernels/linking/digest.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// An entry: kMagic, the key's and the data's sizes in 8 bytes each, the digest of both, the key, the data.
constexpr std::string_view kMagic = "sluice-linked-1\n";
constexpr std::size_t kHeader = kMagic.size() + 16 + 32;
constexpr const char* kSuffix = ".cubin";

std::string size_bytes(unsigned long long size) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(size >> shift & 255);
  return bytes;
}

std::string entry_of(std::string_view key, std::string_view data) {
  const std::string body = std::string(key) + std::string(data);
  return std::string(kMagic) + size_bytes(key.size()) + size_bytes(data.size()) + digest_text(body) + body;
}

}  // namespace

DiskCache::DiskCache(std::string directory, unsigned long long limit) : directory_(std::move(directory)), limit_(limit) {}

std::string DiskCache::default_directory() {
  if (const char* own = std::getenv("SLUICE_CACHE_DIR")) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/sluice";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return std::string(home) + "/.cache/sluice";
  return {};
}

std::optional<std::string> DiskCache::read(std::string_view key) const {
  if (directory_.empty()) return std::nullopt;
  const fs::path path = fs::path(directory_) / (digest_text(key) + kSuffix);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.size() <= kHeader + key.size()) return std::nullopt;
  const std::string_view data = std::string_view(text).substr(kHeader + key.size());
  if (text != entry_of(key, data)) return std::nullopt;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // the oldest is dropped first
  return std::string(data);
}

void DiskCache::write(std::string_view key, std::string_view data) const {
  if (directory_.empty()) return;
  static std::atomic<unsigned> serial = 0;
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) return;
  const std::string entry = entry_of(key, data);
  if (entry.size() > limit_) return;
  make_room(entry.size());
  const fs::path path = fs::path(directory_) / (digest_text(key) + kSuffix);
  const fs::path scratch = path.string() + "." + std::to_string(getpid()) + "." + std::to_string(serial++);
  bool written = false;
  {
    std::ofstream file(scratch, std::ios::binary);
    file.write(entry.data(), static_cast<std::streamsize>(entry.size()));
    file.close();
    written = !file.fail();
  }
  if (written) fs::rename(scratch, path, error);
  if (!written || error) fs::remove(scratch, error);
}

// Drops the entries that were used longest ago. Others may do the same at the same time: a file that is gone is fine.
void DiskCache::make_room(unsigned long long bytes) const {
  struct Entry {
    fs::file_time_type used;
    unsigned long long size;
    fs::path path;
  };
  std::vector<Entry> entries;
  unsigned long long total = bytes;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const Entry entry{it->last_write_time(gone), it->file_size(gone), it->path()};
    if (gone) continue;
    total += entry.size;
    entries.push_back(entry);
  }
  if (total <= limit_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit_ / 4 * 3) return;
    std::error_code gone;
    if (fs::remove(entry.path, gone)) total -= entry.size;
  }
}

}  // namespace sluice
