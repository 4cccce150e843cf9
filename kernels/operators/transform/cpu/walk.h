// The elements of one tensor in the order of the merged dimensions, span by span:
//
//   flat      the order of memory, or one element for all                       one span
//   periodic  rows or groups of rows that repeat, as a bias per column does:    read from a copy, made once, that
//             | c0 c1 c2 | c0 c1 c2 | c0 c1 c2 | c0 ...                         continues for a panel after its end
//   rows      anything else                                                     a span a row; strided elements are
//                                                                               gathered
#pragma once

#include <cstring>

#include "kernels/shared/common/geometry.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/operand.h"
#include "kernels/shared/cpu/vector.h"

namespace sluice {
namespace {  // a copy for each instruction set (kernels/shared/cpu/instruction_set.h)

// Scratch for one panel of the widest dtype plus one vector of slack.
template <class T>
inline constexpr int kScratchBytes = kPanel<T> * static_cast<int>(sizeof(double)) + kVectorBytes;

// Memory for the copies of periodic tensors.
struct PeriodArena {
  static constexpr long long kBytes = 24 * 1024;  // half of the L1 cache
  alignas(64) char bytes[kBytes];
  long long used = 0;
};

// Without a call of memcpy, which costs more than a short row.
SLUICE_HOST_DEVICE void copy_row(char* to, const char* from, long long bytes) {
  const auto copy = [&](auto step) SLUICE_IN_PLACE {  // the last step reaches back over the step before
    long long i = 0;
    for (; i + step < bytes; i += step) std::memcpy(to + i, from + i, step);
    std::memcpy(to + bytes - step, from + bytes - step, step);
  };
  if (bytes >= kVectorBytes) {
    copy(std::integral_constant<int, kVectorBytes>{});
  } else if (bytes >= 16) {
    copy(std::integral_constant<int, 16>{});
  } else if (bytes >= 8) {
    copy(std::integral_constant<int, 8>{});
  } else {
    copy(std::integral_constant<int, 2>{});
  }
}

class PanelWalk {
 public:
  PanelWalk() {}  // uninitialised: a call uses few of its array

  void start(const Operand<kMaxDims>& tensor, int rank, const long long* sizes, long long first) {
    rank_ = rank;
    sizes_ = sizes;
    strides_ = tensor.strides;
    data_ = static_cast<char*>(tensor.data);
    size_ = static_cast<int>(size_of(tensor.dtype));
    long long elements = 1;
    bool flat = true;
    repeats_ = true;
    for (int d = 0; d < rank; ++d) {
      flat = flat && strides_[d] == elements;
      repeats_ = repeats_ && strides_[d] == 0;
      elements *= sizes[d];
    }
    kind_ = flat ? Kind::flat : Kind::rows;
    if (flat || repeats_) {
      kind_ = Kind::flat;
      within_ = first;
      end_ = elements;
    } else {
      seek(first);
    }
  }

  // Makes the tensor periodic if it is, and if the copy fits. `elements` will be read, from `first` on.
  template <int kCount>
  void repeat_rows(PeriodArena& arena, long long first, long long elements) {
    if (kind_ == Kind::flat || sizes_[0] >= kLongRows * kCount) return;
    int last = rank_ - 1;
    while (strides_[last] == 0) --last;
    if (last == rank_ - 1) return;
    long long period = 1;
    for (int d = 0; d <= last; ++d) period *= sizes_[d];
    const long long length = period * ceil_div<long long>(kLongRows * kCount, period);
    const long long bytes = round_up<long long>((length + kCount) * size_, 64);
    if (length > elements / 4 || arena.used + bytes > arena.kBytes) return;
    char* const copy = arena.bytes + arena.used;
    arena.used += bytes;
    seek(0);
    gather(period, copy);
    for (long long done = period; done < length + kCount; done *= 2) {
      std::memcpy(copy + done * size_, copy, min_of(done, length + kCount - done) * size_);
    }
    data_ = copy;
    kind_ = Kind::periodic;
    repeats_ = false;
    within_ = first % length;
    end_ = length;
  }

  // Contiguous elements from here on, or repetitions of one.
  template <int kCount>
  long long span() const {
    if (kind_ == Kind::periodic) return round_up<long long>(end_ - within_, kCount);
    if (kind_ == Kind::flat || strides_[0] == 0 || strides_[0] == 1) return end_ - within_;
    return 0;
  }
  bool repeats() const { return repeats_; }  // along a span
  char* here() const {
    return data_ + (kind_ == Kind::rows ? offset_ + within_ * strides_[0] : repeats_ ? 0 : within_) * size_;
  }

  // Advances by this many elements: at most to the end of a span, or of a row.
  void advance(long long count) {
    within_ += count;
    if (within_ < end_ || kind_ == Kind::flat) return;
    if (kind_ == Kind::periodic) {
      within_ -= end_;
      return;
    }
    within_ = 0;
    for (int d = 1; d < rank_; ++d) {
      offset_ += strides_[d];
      if (++index_[d] < sizes_[d]) return;
      offset_ -= strides_[d] * sizes_[d];
      index_[d] = 0;
    }
  }

  // Copies the next elements, and may write up to a vector more.
  __attribute__((noinline)) void gather(long long count, char* to) {
    along_rows(count, [&](const char* row, long long part) SLUICE_IN_PLACE {
      const long long stride = kind_ == Kind::rows ? strides_[0] : !repeats_;
      if (stride == 1) {
        copy_row(to, row, part * size_);
      } else {
        with_size([&](auto size) SLUICE_IN_PLACE {
          if (stride == 0) {
            char vector[kVectorBytes];
            for (int i = 0; i < kVectorBytes; i += size) std::memcpy(vector + i, row, size);
            for (long long i = 0; i < part * size; i += kVectorBytes) std::memcpy(to + i, vector, kVectorBytes);
          } else {
            for (long long i = 0; i < part; ++i) std::memcpy(to + i * size, row + i * stride * size, size);
          }
        });
      }
      to += part * size_;
    });
  }

  __attribute__((noinline)) void scatter(long long count, const char* from) {
    along_rows(count, [&](char* row, long long part) SLUICE_IN_PLACE {
      const long long stride = kind_ == Kind::rows ? strides_[0] : 1;
      if (stride == 1) {
        copy_row(row, from, part * size_);
      } else {
        with_size([&](auto size) SLUICE_IN_PLACE {
          for (long long i = 0; i < part; ++i) std::memcpy(row + i * stride * size, from + i * size, size);
        });
      }
      from += part * size_;
    });
  }

 private:
  enum class Kind { flat, periodic, rows };
  static constexpr int kLongRows = 8;  // panels per row from which on most are within one

  void seek(long long position) {
    end_ = sizes_[0];
    within_ = position % sizes_[0];
    position /= sizes_[0];
    offset_ = 0;
    for (int d = 1; d < rank_; ++d) {
      index_[d] = position % sizes_[d];
      offset_ += index_[d] * strides_[d];
      position /= sizes_[d];
    }
    repeats_ = strides_[0] == 0;
  }

  template <class Body>
  SLUICE_HOST_DEVICE void along_rows(long long count, const Body& body) {
    while (count > 0) {
      const long long part = kind_ == Kind::rows ? min_of(count, end_ - within_) : count;
      body(here(), part);
      advance(part);
      count -= part;
    }
  }

  template <class Body>
  SLUICE_HOST_DEVICE void with_size(const Body& body) const {
    if (size_ == 4) return body(std::integral_constant<int, 4>{});
    if (size_ == 2) return body(std::integral_constant<int, 2>{});
    body(std::integral_constant<int, 8>{});
  }

  char* data_;
  Kind kind_;
  int size_, rank_;
  bool repeats_;
  long long within_, end_;  // position in the tensor, the period or the row, and its end
  long long offset_, index_[kMaxDims];
  const long long *sizes_, *strides_;
};

}  // namespace
}  // namespace sluice
