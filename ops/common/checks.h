// Checks before any launch, and their text: `<op>: <argument> must <rule>, got <value>`.
//
// The raw op raises this as a RuntimeError. The public Python function turns it into a TypeError if the rule is about a
// dtype ("must have dtype ..."), else into a ValueError (python/sluice/_library.py).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "kernels/shared/pipeline/schedule.h"
#include "ops/common/tensor_view.h"

namespace sluice {

template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (holds) [[likely]]
    return;
  [&] [[gnu::noinline, gnu::cold]] {
    std::ostringstream text;
    (text << ... << parts);
    throw std::runtime_error(text.str());
  }();
}

// Memory, dtypes and devices: `check_floating` for an op's input, `check_device` for other tensors. Both refuse a
// tensor without memory, which would crash a kernel, except on the meta device, whose calls only make plans. An
// argument is named by its text, or by an object that writes it.
template <class Argument>
void check_memory(const char* op, const Argument& argument, const TensorView& tensor) {
  check(tensor.has_memory || tensor.is_meta(), op, ": ", argument,
        " must have memory of its own, got a tensor without storage");
}

template <class Argument>
void check_floating(const char* op, const Argument& argument, const TensorView& tensor) {
  check_memory(op, argument, tensor);
  check(tensor.is_floating, op, ": ", argument, " must have dtype float32, float16, bfloat16 or float64, got ",
        name_of(tensor.scalar_type));
}

template <class Argument>
void check_device(const char* op, const Argument& argument, const TensorView& tensor, const TensorView& input) {
  check_memory(op, argument, tensor);
  check(tensor.device_type == input.device_type && tensor.device_index == input.device_index, op, ": ", argument,
        " must be on the input's device ", input.device(), ", got ", tensor.device());
}

std::optional<DType> check_result_dtype(const char* op, const std::optional<ScalarType>& dtype);

// `out`: shape, dtype and device of the result, no element twice in memory, and no memory in common with
// `input` unless `may_be_same` and it is exactly that tensor. `written` is its name.
void check_out(const char* op, const TensorView& out, const std::vector<int64_t>& sizes, DType dtype,
               const TensorView& input);
void check_written_once(const char* op, const char* written, const TensorView& out);
void check_no_overlap(const char* op, const TensorView& out, const char* argument, const TensorView& input,
                      bool may_be_same, const char* written = "out");
// For an optional tensor that must not be the result.
void check_no_overlap(const char* op, const TensorView& out, const char* argument, const std::optional<Tensor>& input);

// Whether a precision of float32 convolutions, "ieee" or "tf32", allows TF32.
bool check_allows_tf32(const char* op, const std::string& precision);

// schedule: "auto" or a name; depth: 1..8 or none.
ScheduleRequest check_schedule(const char* op, const std::string& schedule, const std::optional<int64_t>& depth);

}  // namespace sluice
