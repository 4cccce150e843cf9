#include "kernels/linking/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <vector>

#include "kernels/linking/digest.h"
#include "kernels/linking/private_file.h"

namespace sluice {
namespace {

// An entry: kMagic, the key's and the data's sizes in 8 bytes each, the digest of both, the key, the data.
constexpr std::string_view kMagic = "sluice-linked-1\n";
constexpr std::size_t kHeader = kMagic.size() + 16 + 32;

// Names: sluice-<digest of the key>.cubin, followed by .<process>.<time> while it is written.
constexpr std::string_view kPrefix = "sluice-", kSuffix = ".cubin";
constexpr std::size_t kDigest = 32;
// An unfinished entry older than this is from a process that died.
constexpr std::time_t kAbandonedSeconds = 3600;

std::string size_bytes(unsigned long long size) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(size >> shift & 255);
  return bytes;
}

std::string entry_of(std::string_view key, std::string_view data) {
  const std::string body = std::string(key) + std::string(data);
  return std::string(kMagic) + size_bytes(key.size()) + size_bytes(data.size()) + digest_text(body) + body;
}

std::string name_of(std::string_view key) { return std::string(kPrefix) + digest_text(key) + std::string(kSuffix); }

enum class Name { foreign, entry, unfinished };

Name kind_of(std::string_view name) {
  const auto take = [&](std::string_view characters, std::size_t least, std::size_t most) {
    const std::size_t count = std::min(name.find_first_not_of(characters), name.size());
    name.remove_prefix(std::min(count, most));
    return count >= least;
  };
  if (!name.starts_with(kPrefix)) return Name::foreign;
  name.remove_prefix(kPrefix.size());
  if (!take("0123456789abcdef", kDigest, kDigest) || !name.starts_with(kSuffix)) return Name::foreign;
  name.remove_prefix(kSuffix.size());
  if (name.empty()) return Name::entry;
  for (int part = 0; part < 2; ++part) {
    if (!take(".", 1, 1) || !take("0123456789", 1, name.size())) return Name::foreign;
  }
  return name.empty() ? Name::unfinished : Name::foreign;
}

struct CacheFile {
  std::string name;
  timespec used;
  unsigned long long size;
  bool unfinished;
};

// The cache's own files; none if the directory cannot be read.
std::vector<CacheFile> own_files(int directory) {
  std::vector<CacheFile> files;
  // A separate descriptor, because a stream closes its descriptor.
  FileDescriptor again(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const opened = again ? fdopendir(again.get()) : nullptr;
  if (opened == nullptr) return files;
  again.release();
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opened, closedir);
  while (const dirent* const item = readdir(stream.get())) {
    const Name kind = kind_of(item->d_name);
    struct stat status;
    if (kind == Name::foreign || fstatat(directory, item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    const auto size = static_cast<unsigned long long>(status.st_size);
    files.push_back({item->d_name, status.st_mtim, size, kind == Name::unfinished});
  }
  return files;
}

bool used_earlier(const CacheFile& a, const CacheFile& b) {
  return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec : a.used.tv_nsec < b.used.tv_nsec;
}

}  // namespace

DiskCache::DiskCache(const std::string& directory, unsigned long long limit) : limit_(limit) {
  if (directory.empty()) return;
  std::error_code error;
  directory_ = std::filesystem::absolute(directory, error).string();
  if (error) write_problem_ = directory + " has no absolute path: " + error.message();
}

std::string DiskCache::default_directory() {
  if (const char* own = std::getenv("SLUICE_CACHE_DIR")) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/sluice";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/sluice";
  return {};
}

std::optional<std::string> DiskCache::read(std::string_view key) const {
  if (directory_.empty()) return std::nullopt;
  const PrivateDirectory directory = open_private_directory(directory_, false);
  if (!directory.descriptor) return std::nullopt;
  const std::optional<std::string> text = read_private(directory.descriptor.get(), name_of(key), limit_);
  if (!text.has_value() || text->size() <= kHeader + key.size()) return std::nullopt;
  const std::string_view data = std::string_view(*text).substr(kHeader + key.size());
  if (*text != entry_of(key, data)) return std::nullopt;
  return std::string(data);
}

void DiskCache::write(std::string_view key, std::string_view data) const {
  if (directory_.empty()) return;
  std::string problem = write_entry(key, data);
  const std::lock_guard lock(mutex_);
  write_problem_ = std::move(problem);
}

std::string DiskCache::write_entry(std::string_view key, std::string_view data) const {
  const std::string entry = entry_of(key, data);
  if (entry.size() > limit_) return {};
  const PrivateDirectory directory = open_private_directory(directory_, true);
  if (!directory.descriptor) return directory.problem;
  const int descriptor = directory.descriptor.get();
  make_room(descriptor, entry.size());
  const std::string name = name_of(key);
  // In containers a process often has its predecessor's number: the time distinguishes them.
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string scratch = name + "." + std::to_string(getpid()) + "." + std::to_string(now);
  return write_private(descriptor, scratch, name, entry);
}

std::string DiskCache::problem() const {
  std::string found = directory_.empty() ? std::string() : open_private_directory(directory_, false).problem;
  const std::lock_guard lock(mutex_);
  return found.empty() ? write_problem_ : found;
}

// Removes abandoned files, then the least recently used entries. Other processes may do the same at the same time: a
// missing file is fine.
void DiskCache::make_room(int directory, unsigned long long bytes) const {
  std::vector<CacheFile> files = own_files(directory);
  const std::time_t now = std::time(nullptr);
  unsigned long long total = bytes;
  std::erase_if(files, [&](const CacheFile& file) {
    if (!file.unfinished) return false;
    const bool abandoned = now - file.used.tv_sec > kAbandonedSeconds;
    if (!abandoned || unlinkat(directory, file.name.c_str(), 0) != 0) total += file.size;
    return true;
  });
  for (const CacheFile& file : files) total += file.size;
  if (total <= limit_) return;
  std::sort(files.begin(), files.end(), used_earlier);
  for (const CacheFile& file : files) {
    if (total <= limit_ / 4 * 3) return;
    if (unlinkat(directory, file.name.c_str(), 0) == 0) total -= file.size;
  }
}

}  // namespace sluice
