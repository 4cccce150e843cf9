// The user's own files, in a directory that nobody else may write to: write access there chooses the code that runs on
// the user's GPU. So owner and rights are checked on the opened file, never on a name, and no symbolic link, pipe or
// device is followed. The user is the effective one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

// A descriptor with a single owner.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() { close(); }

  explicit operator bool() const { return number_ >= 0; }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  bool close();  // false if the file system reports only now that the data was not kept

 private:
  int number_;
};

struct PrivateDirectory {
  FileDescriptor descriptor;
  std::string problem;  // why there is none; empty if it does not exist
};

// `create`: with mode 0700, parents too, if it does not exist. The rights of an existing one are not changed.
PrivateDirectory open_private_directory(const std::string& path, bool create);

// The contents of a regular file of 1 to `limit` bytes that belongs to the user and nobody else may write to; else
// nothing. Its modification time becomes now.
std::optional<std::string> read_private(int directory, const std::string& name, unsigned long long limit);

// Writes a file of mode 0600 as `name`, through `scratch`, which must be new: readers see all of it or the previous
// contents. Returns why it could not be written, or an empty string; on failure `scratch` is removed.
std::string write_private(int directory, const std::string& scratch, const std::string& name, std::string_view data);

}  // namespace sluice
