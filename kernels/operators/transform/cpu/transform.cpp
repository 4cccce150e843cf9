#include <cstdint>
#include <cstring>

#include "kernels/operators/transform/cpu/transform.h"
#include "kernels/operators/transform/cpu/walk.h"
#include "kernels/shared/stages/cpu/evaluate.h"

namespace sluice {
namespace {

// Bytes of a result from which on it is written past the caches. One stage over 2^22 float32 numbers then took 392 us
// instead of 561 with a last cache of 32 MiB, over 2^21 192 instead of 147.
constexpr long long kPastCaches = 16ll << 20;
// From here on malloc gets fresh memory from the system, whose pages come into the caches as they are cleared: 2^24
// float32 numbers took 32.5 ms past them, 29.4 otherwise (one thread; torch 28.3).
constexpr long long kNewPages = 32ll << 20;

template <class T>
SLUICE_HOST_DEVICE Panel<T> load_input(const char* from, DType dtype, bool repeats) {
  if (!repeats) return load_panel<T>(from, dtype);
  const T value = load_one<T>(from, dtype);
  Panel<T> panel;
  for_each_vector([&](int j) SLUICE_IN_PLACE { panel.vectors[j] = Vector<T>{} + value; });
  return panel;
}

// Whether to write the result past the caches: it does not fit into them, and is not there already, as with an input or
// an operand in the same memory.
bool past_caches(const TransformParams& params) {
  long long elements = 1;
  for (int d = 0; d < params.rank; ++d) elements *= params.sizes[d];
  bool fresh = params.input.data != params.output.data;
  for (int k = 0; k < params.program.operands; ++k) fresh = fresh && params.operands[k].data != params.output.data;
  const long long bytes = elements * static_cast<long long>(size_of(params.output.dtype));
  return fresh && bytes >= kPastCaches && !(params.is_new && bytes >= kNewPages);
}

// A range of a call's elements.
template <class T>
class Range {
 public:
  Range(const TransformParams& params, long long first, long long last)
      : params_(params),
        chain_(make_chain_arguments<T, kMaxDims>(params.program, params.operands, params.rank, params.sizes)),
        left_(last - first) {
    input_.start(params.input, params.rank, params.sizes, first);
    output_.start(params.output, params.rank, params.sizes, first);
    streams_ = past_caches(params);
    for (int k = 0; k < params.program.operands; ++k) {
      operands_[k].start(params.operands[k], params.rank, params.sizes, first);
      operands_[k].template repeat_rows<kCount>(arena_, first, last - first);
    }
  }

  void run() {
    while (left_ > 0) {
      const long long panels = span() / kCount;
      if (panels > 0) {
        evaluate_span(panels);
      } else {
        evaluate_gathered(static_cast<int>(min_of<long long>(kCount, left_)));
      }
    }
    if (streams_) finish_streaming();
  }

 private:
  static constexpr int kCount = kPanel<T>;

  // Addresses of panels, and the bytes between them.
  struct Panels {
    long long count;
    const char* source;
    char* target;
    bool repeats;  // the source
    bool streams;  // the target
    long long source_step, target_step, steps[kMaxOperands];
    PanelOperand operands[kMaxOperands];
  };

  // Elements that are contiguous in every tensor.
  long long span() const {
    long long span = min_of(left_, min_of(input_.template span<kCount>(), output_.template span<kCount>()));
    for (int k = 0; k < params_.program.operands; ++k) span = min_of(span, operands_[k].template span<kCount>());
    return span;
  }

  // Contiguous panels.
  void evaluate_span(long long count) {
    Panels panels;
    panels.count = count;
    for (int k = 0; k < params_.program.operands; ++k) {
      const DType dtype = params_.operands[k].dtype;
      panels.operands[k] = {operands_[k].here(), dtype, operands_[k].repeats()};
      panels.steps[k] = operands_[k].repeats() ? 0 : kCount * static_cast<long long>(size_of(dtype));
      operands_[k].advance(kCount * count);
    }
    panels.source = input_.here();
    panels.target = output_.here();
    panels.repeats = input_.repeats();
    panels.streams = streams_ && reinterpret_cast<std::uintptr_t>(panels.target) % kVectorBytes == 0;
    panels.source_step = panels.repeats ? 0 : kCount * static_cast<long long>(size_of(params_.input.dtype));
    panels.target_step = kCount * static_cast<long long>(size_of(params_.output.dtype));
    input_.advance(kCount * count);
    output_.advance(kCount * count);
    evaluate(panels);
    left_ -= kCount * count;
  }

  // A panel of strided elements, or a partial one at the end.
  __attribute__((noinline)) void evaluate_gathered(int count) {
    alignas(64) char scratch[kScratchBytes<T>], parameters[kMaxOperands][kScratchBytes<T>];
    Panels panels;
    panels.count = 1;
    const auto gather = [&](PanelWalk& walk, DType dtype, char* to) {
      walk.gather(count, to);
      std::memset(to + count * size_of(dtype), 0, (kCount - count) * size_of(dtype));
    };
    for (int k = 0; k < params_.program.operands; ++k) {
      gather(operands_[k], params_.operands[k].dtype, parameters[k]);
      panels.operands[k] = {parameters[k], params_.operands[k].dtype, false};
    }
    gather(input_, params_.input.dtype, scratch);
    panels.source = panels.target = scratch;
    panels.source_step = panels.target_step = 0;
    panels.repeats = panels.streams = false;
    evaluate(panels);
    output_.scatter(count, scratch);
    left_ -= count;
  }

  // The state that changes from panel to panel is in registers: other stores would take entries of the queue in which
  // the processor fetches the result's lines (646 us instead of 839 where the caches are too small).
  __attribute__((noinline)) void evaluate(Panels& panels) {
    const DType from = params_.input.dtype, to = params_.output.dtype;
    const int operands = params_.program.operands;
    const char* source = panels.source;
    char* target = panels.target;
    const long long source_step = panels.source_step, target_step = panels.target_step;
    const bool repeats = panels.repeats, streams = panels.streams;
    for (long long left = panels.count; left > 0; --left) {
      Panel<T> values = load_input<T>(source, from, repeats);
      evaluate_panel(chain_, values, [&](int k) SLUICE_IN_PLACE { return panels.operands[k]; });
      if (streams) {
        stream_panel<T>(target, to, values);
      } else {
        store_panel<T>(target, to, values);
      }
      source += source_step;
      target += target_step;
      for (int k = 0; k < operands; ++k) {
        panels.operands[k].data = static_cast<const char*>(panels.operands[k].data) + panels.steps[k];
      }
    }
  }

  const TransformParams& params_;
  const ChainArguments<T, kMaxDims> chain_;
  long long left_;  // elements
  bool streams_;
  PeriodArena arena_;
  PanelWalk input_, output_, operands_[kMaxOperands];
};

}  // namespace

template <>
void transform_cpu<kInstructionSet>(const TransformParams& params, long long first, long long last) {
  if (params.input.dtype == DType::float64) {
    Range<double>(params, first, last).run();
  } else {
    Range<float>(params, first, last).run();
  }
}

}  // namespace sluice
