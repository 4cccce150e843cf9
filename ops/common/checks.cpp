#include "ops/common/checks.h"

#include "ops/common/overlap.h"

namespace sluice {

std::optional<DType> check_result_dtype(const char* op, const std::optional<ScalarType>& dtype) {
  if (!dtype.has_value()) return std::nullopt;
  const std::optional<DType> known = dtype_of(*dtype);
  check(known.has_value(), op, ": dtype must have dtype float32, float16, bfloat16 or float64, got ", name_of(*dtype));
  return known;
}

void check_out(const char* op, const TensorView& out, const std::vector<int64_t>& sizes, DType dtype,
               const TensorView& input) {
  check(out.is_floating && out.dtype == dtype, op, ": out must have dtype ", name_of(dtype), ", got ",
        name_of(out.scalar_type));
  check_device(op, "out", out, input);
  check(out.has_sizes(sizes), op, ": out must have shape ", ShapeText{sizes}, ", got ", out.shape());
  check_written_once(op, "out", out);
}

void check_written_once(const char* op, const char* written, const TensorView& out) {
  if (!overlaps_itself(out)) return;
  check(false, op, ": ", written, " must not have two elements at one address, got strides ",
        ShapeText{{out.strides, static_cast<std::size_t>(out.rank)}}, " for shape ", out.shape());
}

void check_no_overlap(const char* op, const TensorView& out, const char* argument, const TensorView& input,
                      bool may_be_same, const char* written) {
  if (!overlap(out, input)) return;
  const bool same = may_be_same && out.data == input.data && out.dtype == input.dtype && out.walks_like(input);
  check(same, op, ": ", written, " must not overlap ", argument, may_be_same ? " unless it is that tensor" : "",
        ", got memory in common");
}

void check_no_overlap(const char* op, const TensorView& out, const char* argument, const std::optional<Tensor>& input) {
  if (input.has_value()) check_no_overlap(op, out, argument, TensorView(*input), /*may_be_same=*/false);
}

bool check_allows_tf32(const char* op, const std::string& precision) {
  check(precision == "ieee" || precision == "tf32", op, ": precision must be \"ieee\" or \"tf32\", got ", precision);
  return precision == "tf32";
}

ScheduleRequest check_schedule(const char* op, const std::string& schedule, const std::optional<int64_t>& depth) {
  ScheduleRequest request;
  if (!parse_schedule(schedule.c_str(), request)) {
    std::string names = "auto";
    for (const ScheduleTraits& traits : kScheduleTraits) names += std::string(", ") + traits.name;
    check(false, op, ": schedule must be one of ", names, ", got '", schedule, "'");
  }
  check(!depth.has_value() || (*depth >= 1 && *depth <= kMaxDepth), op, ": depth must be 1 to ", kMaxDepth, ", got ",
        depth.value_or(0));
  request.depth = static_cast<int>(depth.value_or(0));
  const int fixed = request.automatic ? 0 : fixed_depth(request.schedule);
  check(fixed == 0 || request.depth == 0 || request.depth == fixed, op, ": depth must be ", fixed, " with schedule ",
        schedule, ", got ", request.depth);
  return request;
}

}  // namespace sluice
