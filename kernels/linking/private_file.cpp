#include "kernels/linking/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sluice {
namespace {

std::string system_error(const std::string& what, int error) { return what + ": " + std::strerror(error); }

// Why others could have written it; empty if they could not.
std::string foreign(const struct stat& status) {
  if (status.st_uid != geteuid()) {
    return "it belongs to user " + std::to_string(status.st_uid) + ", not to " + std::to_string(geteuid());
  }
  const bool shared = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return shared ? "users other than its owner may write to it (fix: chmod go-w)" : "";
}

// mkdir -p with mode 0700. Existing directories are fine; opening shows whether they can be used.
void create_directories(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), S_IRWXU);
  }
  mkdir(path.c_str(), S_IRWXU);
}

bool write_all(int file, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(file, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool read_all(int file, std::string& data) {
  for (std::size_t at = 0; at < data.size();) {
    const ssize_t count = read(file, data.data() + at, data.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

bool FileDescriptor::close() { return number_ < 0 || ::close(std::exchange(number_, -1)) == 0; }

PrivateDirectory open_private_directory(const std::string& path, bool create) {
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  FileDescriptor directory(open(path.c_str(), flags));
  if (!directory && errno == ENOENT && create) {
    create_directories(path);
    directory = FileDescriptor(open(path.c_str(), flags));
  }
  if (!directory) {
    const bool absent = errno == ENOENT && !create;
    return {FileDescriptor(), absent ? std::string() : system_error(path + " cannot be opened", errno)};
  }
  struct stat status;
  if (fstat(directory.get(), &status) != 0) return {FileDescriptor(), system_error(path + " has no status", errno)};
  const std::string reason = foreign(status);
  if (!reason.empty()) return {FileDescriptor(), path + " is not used, because " + reason};
  return {std::move(directory), {}};
}

std::optional<std::string> read_private(int directory, const std::string& name, unsigned long long limit) {
  // O_NONBLOCK: opening a pipe would wait for its other end.
  const FileDescriptor file(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode) || !foreign(status).empty()) return std::nullopt;
  if (status.st_size <= 0 || static_cast<unsigned long long>(status.st_size) > limit) return std::nullopt;
  std::string data(static_cast<std::size_t>(status.st_size), '\0');
  if (!read_all(file.get(), data)) return std::nullopt;
  futimens(file.get(), nullptr);
  return data;
}

std::string write_private(int directory, const std::string& scratch, const std::string& name, std::string_view data) {
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  FileDescriptor file(openat(directory, scratch.c_str(), flags, S_IRUSR | S_IWUSR));
  if (!file) return system_error("an entry cannot be created", errno);
  const bool kept =
      write_all(file.get(), data) && file.close() && renameat(directory, scratch.c_str(), directory, name.c_str()) == 0;
  if (kept) return {};
  const int error = errno;
  unlinkat(directory, scratch.c_str(), 0);
  return system_error("an entry cannot be written", error);
}

}  // namespace sluice
