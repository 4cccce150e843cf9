// Scratch memory of one thread in a CPU kernel.
#pragma once

#include <cstddef>
#include <new>

namespace sluice {
namespace {  // a copy for each instruction set (kernels/shared/cpu/instruction_set.h)

// Not a std::vector: the linker would share its functions among instruction sets. Only grows; contents are lost.
template <class T>
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { ::operator delete(data_, kLine); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* allocate(long long count) {
    if (count > count_) {
      ::operator delete(data_, kLine);
      data_ = nullptr;
      data_ = ::operator new(static_cast<std::size_t>(count) * sizeof(T), kLine);
      count_ = count;
    }
    return static_cast<T*>(data_);
  }
  T* data() const { return static_cast<T*>(data_); }

 private:
  static constexpr std::align_val_t kLine{64};
  void* data_ = nullptr;
  long long count_ = 0;
};

}  // namespace
}  // namespace sluice
