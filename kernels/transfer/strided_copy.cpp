#include "kernels/transfer/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/transfer/wide_copy.h"

namespace sluice::transfer {
namespace {

// Iterates over the rows of the host side from a given row.
class Rows {
 public:
  Rows(const StridedCopy& copy, std::int64_t row) : copy_(copy), address_(copy.host) {
    for (int d = copy.rank; d-- > 0;) {
      index_[d] = row % copy.extent[d];
      row /= copy.extent[d];
      address_ += index_[d] * copy.stride[d];
    }
  }
  char* address() const { return address_; }
  // Rows left in the innermost dimension, this one included.
  std::int64_t left() const { return copy_.rank == 0 ? 1 : copy_.extent[copy_.rank - 1] - index_[copy_.rank - 1]; }
  std::int64_t step() const { return copy_.rank == 0 ? 0 : copy_.stride[copy_.rank - 1]; }
  // Advances by `rows` <= left().
  void advance(std::int64_t rows) {
    if (copy_.rank == 0) return;
    int d = copy_.rank - 1;
    index_[d] += rows;
    address_ += rows * copy_.stride[d];
    for (; index_[d] == copy_.extent[d] && d > 0; --d) {
      address_ += copy_.stride[d - 1] - index_[d] * copy_.stride[d];
      index_[d] = 0;
      ++index_[d - 1];
    }
  }

 private:
  const StridedCopy& copy_;
  char* address_;
  std::int64_t index_[StridedCopy::kMaxRank] = {};
};

// Rows of one number: the compiler makes each memcpy one load and one store.
template <int kBytes, bool kGather>
void move_numbers(char* host, std::int64_t step, char* packed, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i, host += step, packed += kBytes) {
    std::memcpy(kGather ? packed : host, kGather ? host : packed, kBytes);
  }
}

template <bool kGather>
void move_rows(char* host, std::int64_t step, char* packed, std::int64_t span, std::int64_t rows) {
  switch (span) {
    case 1: return move_numbers<1, kGather>(host, step, packed, rows);
    case 2: return move_numbers<2, kGather>(host, step, packed, rows);
    case 4: return move_numbers<4, kGather>(host, step, packed, rows);
    case 8: return move_numbers<8, kGather>(host, step, packed, rows);
    case 16: return move_numbers<16, kGather>(host, step, packed, rows);
    default: break;
  }
  for (std::int64_t i = 0; i < rows; ++i, host += step, packed += span) {
    wide_copy(kGather ? packed : host, kGather ? host : packed, span);
  }
}

template <bool kGather>
void move(const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* packed) {
  if (begin >= end) return;
  Rows rows(copy, begin / copy.span);
  // The rest of a row that the packet before began.
  if (const std::int64_t skip = begin % copy.span; skip != 0) {
    const std::int64_t bytes = std::min(copy.span - skip, end - begin);
    wide_copy(kGather ? packed : rows.address() + skip, kGather ? rows.address() + skip : packed, bytes);
    rows.advance(1);
    begin += bytes;
    packed += bytes;
  }
  while (end - begin >= copy.span) {
    const std::int64_t count = std::min(rows.left(), (end - begin) / copy.span);
    move_rows<kGather>(rows.address(), rows.step(), packed, copy.span, count);
    rows.advance(count);
    begin += count * copy.span;
    packed += count * copy.span;
  }
  if (begin < end) wide_copy(kGather ? packed : rows.address(), kGather ? rows.address() : packed, end - begin);
}

}  // namespace

std::int64_t StridedCopy::rows() const {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= extent[d];
  return count;
}

StridedCopy make_copy(char* host, char* packed, std::int64_t itemsize, int rank, const std::int64_t* sizes,
                      const std::int64_t* strides) {
  StridedCopy copy;
  copy.host = host;
  copy.packed = packed;
  copy.span = itemsize;
  int inner = rank;
  while (inner > 0 && (sizes[inner - 1] == 1 || strides[inner - 1] == copy.span)) copy.span *= sizes[--inner];
  for (int d = 0; d < inner; ++d) {
    if (sizes[d] == 1) continue;
    // Merged with the dimension outside it, if that one's stride is this one's stride times its size.
    if (copy.rank > 0 && copy.stride[copy.rank - 1] == strides[d] * sizes[d]) {
      copy.extent[copy.rank - 1] *= sizes[d];
      copy.stride[copy.rank - 1] = strides[d];
    } else {
      copy.extent[copy.rank] = sizes[d];
      copy.stride[copy.rank++] = strides[d];
    }
  }
  return copy;
}

void gather(const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* packed) {
  move<true>(copy, begin, end, packed);
}

void scatter(const StridedCopy& copy, std::int64_t begin, std::int64_t end, const char* packed) {
  move<false>(copy, begin, end, const_cast<char*>(packed));
}

}  // namespace sluice::transfer
