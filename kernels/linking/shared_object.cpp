#include "kernels/linking/shared_object.h"

#include <link.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace sluice {
namespace {

struct Holder {
  std::uintptr_t address;
  bool found;
  std::string path;
  std::string build_id;
};

std::size_t padded(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }

// Notes follow each other: a header, then name and descriptor, each padded to the segment's alignment of 4 or 8.
std::string build_id_of(std::string_view notes, std::size_t alignment) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    const std::size_t name_end = padded(sizeof(header) + header.n_namesz, alignment);
    const std::size_t end = padded(name_end + header.n_descsz, alignment);
    if (name_end + header.n_descsz > notes.size()) return {};
    const std::string_view name = notes.substr(sizeof(header), header.n_namesz);
    if (header.n_type == NT_GNU_BUILD_ID && name == std::string_view("GNU", 4)) {
      std::string text;
      for (unsigned char byte : notes.substr(name_end, header.n_descsz)) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
      }
      return text;
    }
    notes.remove_prefix(end < notes.size() ? end : notes.size());
  }
  return {};
}

const ElfW(Phdr) * loaded_segment(const dl_phdr_info& object, std::uintptr_t address) {
  for (int s = 0; s < object.dlpi_phnum; ++s) {
    const ElfW(Phdr) & segment = object.dlpi_phdr[s];
    if (segment.p_type == PT_LOAD && address - (object.dlpi_addr + segment.p_vaddr) < segment.p_memsz) return &segment;
  }
  return nullptr;
}

int visit_object(dl_phdr_info* object, std::size_t, void* data) {
  auto& holder = *static_cast<Holder*>(data);
  if (loaded_segment(*object, holder.address) == nullptr) return 0;
  holder.found = true;
  holder.path = *object->dlpi_name == '\0' ? "/proc/self/exe" : object->dlpi_name;
  for (int s = 0; s < object->dlpi_phnum && holder.build_id.empty(); ++s) {
    const ElfW(Phdr) & segment = object->dlpi_phdr[s];
    const std::uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    // Tools that rewrite objects may leave notes only in the file.
    if (segment.p_type != PT_NOTE || segment.p_memsz == 0 || loaded_segment(*object, begin) == nullptr ||
        loaded_segment(*object, begin + segment.p_memsz - 1) == nullptr)
      continue;
    const std::string_view notes(reinterpret_cast<const char*>(begin), segment.p_memsz);
    holder.build_id = build_id_of(notes, segment.p_align == 8 ? 8 : 4);
  }
  return 1;
}

Holder holder_of(const void* address) {
  Holder holder{reinterpret_cast<std::uintptr_t>(address), false, {}, {}};
  dl_iterate_phdr(visit_object, &holder);
  return holder;
}

int append_path(dl_phdr_info* object, std::size_t, void* paths) {
  if (*object->dlpi_name != '\0') static_cast<std::vector<std::string>*>(paths)->push_back(object->dlpi_name);
  return 0;
}

}  // namespace

std::vector<std::string> loaded_objects() {
  std::vector<std::string> paths;
  dl_iterate_phdr(append_path, &paths);
  return paths;
}

std::string object_path(const void* address) { return holder_of(address).path; }

std::string object_identity(const void* address) {
  const Holder holder = holder_of(address);
  if (!holder.found || !holder.build_id.empty()) return holder.build_id;
  struct stat status;
  if (stat(holder.path.c_str(), &status) != 0) return {};
  return std::to_string(status.st_size) + "@" + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

}  // namespace sluice
