// Checks that come before any launch, and their text: `<op>: <argument> must <rule>, got <value>`.
//
// The raw op raises this as a RuntimeError. The public Python function makes a TypeError of it where the
// rule is about a dtype ("must have dtype ..."), else a ValueError (python/sluice/_library.py).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "kernels/pipeline/schedule.h"
#include "ops/common/tensor_view.h"

namespace sluice {

template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (holds) [[likely]]
    return;
  std::ostringstream text;
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

// Memory, dtypes and devices: `check_floating` is for an op's input, `check_device` for what comes beside it.
// Both refuse a tensor that has no memory, which a kernel would follow to nowhere, but for one on the meta device: that
// comes to plans alone, all of whose tensors are there.
void check_memory(const char* op, const char* argument, const TensorView& tensor);
void check_floating(const char* op, const char* argument, const TensorView& tensor);
void check_device(const char* op, const char* argument, const TensorView& tensor, const TensorView& input);
std::optional<DType> check_result_dtype(const char* op, const std::optional<ScalarType>& dtype);

// `out`: shape, dtype and device of the result, no element twice in memory, and no memory in common with
// `input` unless `may_be_same` and it is exactly that tensor. `written` is its name.
void check_out(const char* op, const TensorView& out, const std::vector<int64_t>& sizes, DType dtype,
               const TensorView& input);
void check_written_once(const char* op, const char* written, const TensorView& out);
void check_no_overlap(const char* op, const TensorView& out, const char* argument, const TensorView& input,
                      bool may_be_same, const char* written = "out");
// For a tensor that may be left out, and that the result may never be.
void check_no_overlap(const char* op, const TensorView& out, const char* argument, const std::optional<Tensor>& input);

// schedule: "auto" or a name; depth: 1..8 or none.
ScheduleRequest check_schedule(const char* op, const std::string& schedule, const std::optional<int64_t>& depth);

}  // namespace sluice
