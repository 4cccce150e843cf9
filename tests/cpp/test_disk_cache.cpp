// The cache of linked kernels in various directories: its own, a user's, another user's, and directories with traps.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/linking/disk_cache.h"
#include "tests/cpp/check.h"

using namespace sluice;
namespace fs = std::filesystem;

namespace {

constexpr unsigned long long kRoomy = 1 << 20;
const std::string kData = "a cubin";

// An empty directory, or the name of one to be made; removed with the test.
class Folder {
 public:
  explicit Folder(const char* name, bool exists = true)
      : path(fs::temp_directory_path() / ("sluice-test-" + std::to_string(getpid()) + "-" + name)) {
    fs::remove_all(path);
    if (exists) fs::create_directory(path), chmod(path.c_str(), 0755);
  }
  ~Folder() { fs::remove_all(path); }

  const fs::path path;
};

DiskCache cache_in(const fs::path& path, unsigned long long limit = kRoomy) { return DiskCache(path.string(), limit); }

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::size_t count(const fs::path& path) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

// The only file of a directory: the entry that a test has just written.
fs::path only(const fs::path& directory) {
  CHECK(count(directory) == 1);
  return fs::directory_iterator(directory)->path();
}

unsigned mode_of(const fs::path& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777u : ~0u;
}

void age(const fs::path& path, int seconds) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

// A disabled cache: it reads and writes nothing, and says why.
bool refuses(const fs::path& path, const char* because) {
  const DiskCache cache = cache_in(path);
  cache.write("key", kData);
  return !cache.read("key").has_value() && cache.problem().find(because) != std::string::npos;
}

}  // namespace

TEST(the_disk_gives_back_what_was_written) {
  const Folder folder("cache", false);
  const DiskCache cache = cache_in(folder.path);
  CHECK(!cache.read("key").has_value() && cache.problem().empty());
  cache.write("key", std::string("a\0b", 3));
  CHECK(cache.read("key") == std::string("a\0b", 3));
  CHECK(!cache.read("other").has_value());
  const fs::path entry = only(folder.path);
  const std::string whole = text_of(entry);
  const std::string shorter = whole.substr(0, whole.size() - 1);
  for (const std::string& damaged : {shorter + "!", shorter, whole + "!", whole.substr(0, 5), std::string()}) {
    put(entry, damaged);
    CHECK(!cache.read("key").has_value());
  }
  cache.write("key", "again");
  CHECK(cache.read("key") == std::string("again") && cache.problem().empty());
}

TEST(the_disk_cache_stays_within_its_limit) {
  const Folder folder("limit");
  const DiskCache cache = cache_in(folder.path, 10'000);
  for (int i = 0; i < 50; ++i) cache.write("key " + std::to_string(i), std::string(1000, 'x'));
  unsigned long long total = 0;
  for (const auto& entry : fs::directory_iterator(folder.path)) total += entry.file_size();
  CHECK(total > 3000 && total <= 10'000);
  CHECK(cache.read("key 49").has_value() && !cache.read("key 0").has_value());
  cache.write("too large", std::string(20'000, 'x'));
  CHECK(!cache.read("too large").has_value());
}

TEST(the_disk_cache_leaves_files_that_are_not_its_own) {
  const Folder folder("foreign"), elsewhere("elsewhere");
  const std::string digest(32, 'a'), large(50'000, 'x');
  const std::vector<std::string> names = {"thesis.tex",
                                          digest + ".cubin",
                                          "sluice-notes.txt",
                                          "sluice-" + digest,
                                          "sluice-" + digest + ".cubin.bak",
                                          "sluice-" + digest + ".cubin.1",
                                          "sluice-" + digest + ".cubin.1.2.3",
                                          "sluice-" + digest + "a.cubin",
                                          "nvrtc.log.1.2"};
  for (const std::string& name : names) put(folder.path / name, large), age(folder.path / name, 1'000'000);
  put(elsewhere.path / "target", large);
  fs::create_symlink(elsewhere.path / "target", folder.path / ("sluice-" + digest + ".cubin"));
  fs::create_directory(folder.path / ("sluice-" + std::string(32, 'b') + ".cubin"));
  const DiskCache cache = cache_in(folder.path, 10'000);
  for (int i = 0; i < 50; ++i) cache.write("key " + std::to_string(i), std::string(1000, 'x'));
  for (const std::string& name : names) CHECK(text_of(folder.path / name) == large);
  CHECK(text_of(elsewhere.path / "target") == large);
  CHECK(fs::is_symlink(folder.path / ("sluice-" + digest + ".cubin")));
  // They are not counted either: the cache has its whole capacity.
  for (int i = 47; i < 50; ++i) CHECK(cache.read("key " + std::to_string(i)).has_value());
  CHECK(count(folder.path) >= names.size() + 2 + 6);
}

TEST(what_a_dead_process_was_writing_is_removed) {
  const Folder folder("abandoned");
  const std::string name = "sluice-" + std::string(32, 'c') + ".cubin";
  put(folder.path / (name + ".7.1"), "part");
  put(folder.path / (name + ".7.2"), "part");
  age(folder.path / (name + ".7.1"), 4000);
  cache_in(folder.path).write("key", kData);
  CHECK(!fs::exists(folder.path / (name + ".7.1")) && fs::exists(folder.path / (name + ".7.2")));
}

TEST(entries_are_the_users_alone) {
  const Folder folder("modes", false);
  const mode_t former = umask(0);
  const fs::path directory = folder.path / "parent" / "cache with spaces";
  const DiskCache cache = cache_in(directory);
  cache.write("key", kData);
  umask(former);
  CHECK(mode_of(directory) == 0700 && mode_of(directory.parent_path()) == 0700);
  const fs::path entry = only(directory);
  CHECK(mode_of(entry) == 0600 && cache.read("key") == kData);
  for (mode_t writable : {0620, 0602, 0666}) {
    chmod(entry.c_str(), writable);
    CHECK(!cache.read("key").has_value());
  }
  chmod(entry.c_str(), 0644);  // others may read it
  CHECK(cache.read("key") == kData);
  if (geteuid() == 0) {
    CHECK(chown(entry.c_str(), 12345, 12345) == 0);
    CHECK(!cache.read("key").has_value());
  }
}

TEST(a_directory_that_others_may_write_to_is_not_used) {
  const Folder folder("rights");
  const DiskCache cache = cache_in(folder.path);
  cache.write("key", kData);
  CHECK(cache.read("key") == kData && mode_of(folder.path) == 0755);  // a user's directory is not changed
  for (mode_t writable : {0775, 0757, 01777}) {
    chmod(folder.path.c_str(), writable);
    CHECK(!cache.read("key").has_value());
    cache.write("other", kData);
    CHECK(count(folder.path) == 1 && mode_of(folder.path) == writable);
    CHECK(cache.problem().find("users other than its owner may write to it") != std::string::npos);
  }
  chmod(folder.path.c_str(), 0700);
  cache.write("other", kData);
  CHECK(cache.read("key") == kData && cache.read("other") == kData && cache.problem().empty());
}

TEST(a_directory_of_another_user_is_not_used) {
  const Folder folder("owner");
  if (geteuid() == 0) CHECK(chown(folder.path.c_str(), 12345, 12345) == 0);
  const fs::path foreign = geteuid() == 0 ? folder.path : fs::path("/usr");
  CHECK(refuses(foreign, "it belongs to user"));
  CHECK(count(folder.path) == 0);
}

TEST(no_link_and_no_pipe_is_followed) {
  const Folder folder("traps"), elsewhere("target");
  const DiskCache cache = cache_in(folder.path);
  cache.write("key", kData);
  const fs::path entry = only(folder.path), moved = elsewhere.path / "moved";
  fs::rename(entry, moved);
  const std::string whole = text_of(moved);
  fs::create_symlink(moved, entry);
  CHECK(!cache.read("key").has_value());
  cache.write("key", "new");  // replaces the link, not what it points to
  CHECK(!fs::is_symlink(entry) && text_of(moved) == whole && cache.read("key") == std::string("new"));

  fs::remove(entry);
  CHECK(mkfifo(entry.c_str(), 0600) == 0);
  CHECK(!cache.read("key").has_value());  // and does not wait for a writer
  cache.write("key", "new");
  CHECK(cache.read("key") == std::string("new"));

  fs::remove(entry);
  fs::create_directory(entry);
  CHECK(!cache.read("key").has_value());
  cache.write("key", "new");
  CHECK(only(folder.path) == entry && cache.problem().find("cannot be written") != std::string::npos);

  fs::remove(entry);
  cache.write("key", "new");
  fs::resize_file(entry, 1ull << 40);  // zeros: a file larger than the cache is not read
  CHECK(!cache.read("key").has_value());
}

TEST(a_disk_that_is_full_leaves_nothing_behind) {
  const Folder folder("full");
  const DiskCache cache = cache_in(folder.path);
  struct rlimit former;
  CHECK(getrlimit(RLIMIT_FSIZE, &former) == 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {1000, former.rlim_max};
  CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  cache.write("key", std::string(5000, 'x'));  // a write that stops after 1000 bytes
  setrlimit(RLIMIT_FSIZE, &former);
  signal(SIGXFSZ, handler);
  CHECK(count(folder.path) == 0 && !cache.problem().empty());
  cache.write("key", std::string(5000, 'x'));
  CHECK(cache.read("key") == std::string(5000, 'x') && cache.problem().empty());
}

TEST(a_directory_that_cannot_be_used_is_no_error) {
  const Folder folder("unusable");
  put(folder.path / "file", "no directory");
  CHECK(refuses(folder.path / "file", "Not a directory"));
  CHECK(refuses(folder.path / "file" / "below", "Not a directory"));
  CHECK(refuses("/proc/nowhere", "cannot be opened") && refuses("/dev/full", "Not a directory"));
  CHECK(mkfifo((folder.path / "pipe").c_str(), 0600) == 0);
  CHECK(refuses(folder.path / "pipe", "Not a directory"));
  if (geteuid() != 0) {
    fs::create_directory(folder.path / "locked");
    chmod((folder.path / "locked").c_str(), 0500);
    CHECK(refuses(folder.path / "locked", "Permission denied"));
  }
  CHECK(text_of(folder.path / "file") == "no directory");
  const DiskCache off("", kRoomy);
  off.write("key", kData);
  CHECK(!off.read("key").has_value() && off.directory().empty() && off.problem().empty());
}

TEST(a_relative_directory_stays_where_it_was) {
  const Folder folder("here"), elsewhere("there");
  const fs::path former = fs::current_path();
  fs::current_path(folder.path);
  const DiskCache cache("kernels", kRoomy);
  fs::current_path(elsewhere.path);
  cache.write("key", kData);
  fs::current_path(former);
  CHECK(cache.read("key") == kData && count(folder.path / "kernels") == 1 && count(elsewhere.path) == 0);
}

TEST(many_share_a_small_cache) {
  const Folder folder("shared");
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const DiskCache cache = cache_in(folder.path, 20'000);
      for (int i = 0; i < 100; ++i) {
        const std::string key = "key " + std::to_string(i % 30), data = std::string(1000, 'x') + key;
        cache.write(key, data);
        const std::optional<std::string> found = cache.read("key " + std::to_string(t));
        wrong[t] += found.has_value() && *found != std::string(1000, 'x') + "key " + std::to_string(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int w : wrong) CHECK(w == 0);
  for (const auto& entry : fs::directory_iterator(folder.path)) CHECK(entry.path().extension() == ".cubin");
}
