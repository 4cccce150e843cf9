// Files of the user's own, in a directory that nobody else may write to. Whoever can write there chooses the code that
// runs on the user's GPU, so owners and rights are asked of what was opened, never of a name; no symbolic link, pipe or
// device is followed. The user is the effective one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

// A descriptor and its one owner.
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
  bool close();  // false where the file system says only now that it did not keep what was written

 private:
  int number_;
};

struct PrivateDirectory {
  FileDescriptor descriptor;
  std::string problem;  // why there is none; empty where it does not exist
};

// `create`: with mode 0700, parents too, where it does not exist. The rights of one that does are left as they are.
PrivateDirectory open_private_directory(const std::string& path, bool create);

// All of a regular file of the user's that nobody else may write to, of 1 to `limit` bytes; else nothing. Its time of
// modification becomes now.
std::optional<std::string> read_private(int directory, const std::string& name, unsigned long long limit);

// A file of mode 0600 under `name`, by way of `scratch`, which must be new: readers see all of it or what was there
// before. Returns why it could not be written, or an empty string; then nothing is left of `scratch` either.
std::string write_private(int directory, const std::string& scratch, const std::string& name, std::string_view data);

}  // namespace sluice
