#include "kernels/transfer/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/transfer/wide_copy.h"

namespace sluice::transfer {
namespace {

// Walks the rows of the host side from any one on.
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
  // How many rows the innermost dimension still has from here, this one included.
  std::int64_t left() const { return copy_.rank == 0 ? 1 : copy_.extent[copy_.rank - 1] - index_[copy_.rank - 1]; }
  std::int64_t step() const { return copy_.rank == 0 ? 0 : copy_.stride[copy_.rank - 1]; }
  // Goes on by `rows`, which are no more than left().
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

// Rows of the size of one number: a compiler turns each memcpy into one load and one store.
template <int kBytes, bool kGather>
void move_numbers(char* host, std::int64_t step, char* dense, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i, host += step, dense += kBytes) {
    std::memcpy(kGather ? dense : host, kGather ? host : dense, kBytes);
  }
}

template <bool kGather>
void move_rows(char* host, std::int64_t step, char* dense, std::int64_t run, std::int64_t rows) {
  switch (run) {
    case 1: return move_numbers<1, kGather>(host, step, dense, rows);
    case 2: return move_numbers<2, kGather>(host, step, dense, rows);
    case 4: return move_numbers<4, kGather>(host, step, dense, rows);
    case 8: return move_numbers<8, kGather>(host, step, dense, rows);
    case 16: return move_numbers<16, kGather>(host, step, dense, rows);
    default: break;
  }
  for (std::int64_t i = 0; i < rows; ++i, host += step, dense += run) {
    wide_copy(kGather ? dense : host, kGather ? host : dense, run);
  }
}

template <bool kGather>
void move(const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* dense) {
  if (begin >= end) return;
  Rows rows(copy, begin / copy.run);
  // The rest of a row that an earlier piece began.
  if (const std::int64_t skip = begin % copy.run; skip != 0) {
    const std::int64_t bytes = std::min(copy.run - skip, end - begin);
    wide_copy(kGather ? dense : rows.address() + skip, kGather ? rows.address() + skip : dense, bytes);
    rows.advance(1);
    begin += bytes;
    dense += bytes;
  }
  while (end - begin >= copy.run) {
    const std::int64_t count = std::min(rows.left(), (end - begin) / copy.run);
    move_rows<kGather>(rows.address(), rows.step(), dense, copy.run, count);
    rows.advance(count);
    begin += count * copy.run;
    dense += count * copy.run;
  }
  if (begin < end) wide_copy(kGather ? dense : rows.address(), kGather ? rows.address() : dense, end - begin);
}

}  // namespace

std::int64_t StridedCopy::rows() const {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= extent[d];
  return count;
}

StridedCopy make_copy(char* host, char* dense, std::int64_t itemsize, int rank, const std::int64_t* sizes,
                      const std::int64_t* strides) {
  StridedCopy copy;
  copy.host = host;
  copy.dense = dense;
  copy.run = itemsize;
  int inner = rank;
  while (inner > 0 && (sizes[inner - 1] == 1 || strides[inner - 1] == copy.run)) copy.run *= sizes[--inner];
  for (int d = 0; d < inner; ++d) {
    if (sizes[d] == 1) continue;
    // The dimension outside of this one, if one step of it is a whole walk of this one.
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

void gather(const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* dense) {
  move<true>(copy, begin, end, dense);
}

void scatter(const StridedCopy& copy, std::int64_t begin, std::int64_t end, const char* dense) {
  move<false>(copy, begin, end, const_cast<char*>(dense));
}

}  // namespace sluice::transfer
