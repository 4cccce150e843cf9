// Numbers in tensors that kernels read: slots, lengths, ids.
#pragma once

#include "kernels/shared/common/qualifiers.h"

namespace sluice {

// int32 or int64 numbers of one or two dimensions.
struct Indices {
  const void* data;  // null: absent
  bool is_wide;      // int64
  long long strides[2];

  SLUICE_HOST_DEVICE bool exists() const { return data != nullptr; }
  SLUICE_HOST_DEVICE long long at(long long i, long long j = 0) const {
    const long long place = i * strides[0] + j * strides[1];
    return is_wide ? static_cast<const long long*>(data)[place] : static_cast<const int*>(data)[place];
  }
};

// A bool for each sequence.
struct Flags {
  const bool* data;  // null: absent
  long long stride;

  SLUICE_HOST_DEVICE bool exists() const { return data != nullptr; }
  SLUICE_HOST_DEVICE bool at(long long i) const { return data[i * stride]; }
};

}  // namespace sluice
