// Applies a chain to values in registers, one stage after another.
//
//   values   [ v0 v1 .. v7 | v8 .. v15 ]      `Slices` vectors of `Width` consecutive elements
//                 |  stage 0: a switch that is uniform over the grid, all values at once
//                 |  stage 1: ...
//
// Kernels call `chain.apply(values, chain.load(place))`. `place(operand, slice)` gives the place of a slice's elements
// in an operand, so the interpreter knows nothing of the kernel's geometry. A chain linked at run time
// (linked_chain.cuh) replaces the interpreter.
#pragma once

#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/stages/evaluate.cuh"
#include "kernels/shared/stages/place.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

// `Width` elements at `place`, as T. In 16-byte loads if the operand allows it.
template <class Element, int Width, class T>
__device__ __forceinline__ void load_elements(const Element* data, const Place& place, T* values) {
  const Element* const base = data + place.offset;
  if (place.stride == 0) {
    const T value = place.first < place.last ? convert<T>(*base) : T(0);
#pragma unroll
    for (int i = 0; i < Width; ++i) values[i] = value;
    return;
  }
  constexpr int kBytes = Width * static_cast<int>(sizeof(Element));
  if (kBytes % kWordBytes == 0 && place.stride == 1 && place.first == 0 && place.last == Width &&
      is_word_aligned(base)) {
    constexpr int kElements = kBytes % kWordBytes == 0 ? kWordElements<Element> : 1;
    Word words[kBytes >= kWordBytes ? kBytes / kWordBytes : 1];
#pragma unroll
    for (int w = 0; w < kBytes / kWordBytes; ++w) words[w] = load_word(base + w * kElements);
#pragma unroll
    for (int w = 0; w < kBytes / kWordBytes; ++w) unpack<Element>(words[w], values + w * kElements);
    return;
  }
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    values[i] = place.first <= i && i < place.last ? convert<T>(base[i * place.stride]) : T(0);
  }
}

// Without `Operands` the chain has only numbers. Kernels have an instance for such chains: the code that loads
// operands, even if not executed, costs registers that hide memory latency.
template <class T, int Rank, bool Operands = true>
struct InterpretedChain {
  static constexpr bool kIsInline = false;
  const ChainArguments<T, Rank>& arguments;

  __device__ __forceinline__ bool empty() const { return arguments.count == 0; }
  __device__ __forceinline__ static constexpr bool has_operands() { return Operands; }  // or may have

  // The linked form's loads ahead; the interpreter loads a stage's operands when it reaches the stage.
  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ PlaceOf load(PlaceOf place_of) const {
    return place_of;
  }

  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ void apply(T (&values)[Width * Slices], const PlaceOf& place_of) const {
    for (int s = 0; s < arguments.count; ++s) {
      const Header& header = arguments.headers[s];
      const unsigned control = header.control;
      const Op op = Header::op(control);
      const StageKind kind = Header::kind(control);
      if (kind == StageKind::numbers) {
        const Parameters<T> numbers = {{header.number[0], header.number[1], header.number[2]}};
        with_stage<T>(
            op, [&](auto evaluate) { evaluate_all<Width * Slices>(evaluate, values, [&](int) { return numbers; }); });
      } else if (kind == StageKind::cast) {
        round_through<Width * Slices>(Header::dtype(control), values);
      } else if constexpr (Operands) {
        if (kind == StageKind::arithmetic) {
          apply_arithmetic<Width, Slices>(s, values, place_of);
        } else {
          apply_elementwise<Width, Slices>(s, values, place_of);
        }
      }
    }
  }

 private:
  using Header = typename ChainArguments<T, Rank>::Header;

  template <int Count>
  __device__ __forceinline__ static void round_through(DType dtype, T* values) {
    with_element_type(dtype, [&](auto* tag) {
      using Element = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
#pragma unroll
      for (int i = 0; i < Count; ++i) values[i] = convert<T>(convert<Element>(values[i]));
    });
  }

  // add, sub, mul or div with one tensor: every slice's elements are in flight before the first is used.
  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ void apply_arithmetic(int s, T* values, const PlaceOf& place_of) const {
    const Header& header = arguments.headers[s];
    const int k = arguments.operand[s][0];
    T other[Width * Slices];
    with_element_type(arguments.operands[k].dtype, [&](auto* tag) {
      const auto* data = static_cast<decltype(tag)>(arguments.operands[k].data);
#pragma unroll
      for (int g = 0; g < Slices; ++g) {
        load_elements<std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>, Width>(data, place_of(k, g),
                                                                                     other + g * Width);
      }
    });
    with_arithmetic(Header::op(header.control), [&](auto evaluate) {
#pragma unroll
      for (int i = 0; i < Width * Slices; ++i)
        values[i] = evaluate(values[i], Parameters<T>{{other[i], header.number[1], T(0)}});
    });
  }

  // Any stage with any mix of numbers and tensors, one element at a time. The values go through local memory so that
  // this long list of stages is compiled once, not once per element.
  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ void apply_elementwise(int s, T* values, const PlaceOf& place_of) const {
    // Read in place, in constant memory: a copy would be on the stack, because it is indexed below.
    const Header& header = arguments.headers[s];
    const signed char* const operand = arguments.operand[s];
    T staged[Width * Slices];
    Place places[kMaxParameters][Slices];
#pragma unroll
    for (int i = 0; i < Width * Slices; ++i) staged[i] = values[i];
#pragma unroll
    for (int p = 0; p < kMaxParameters; ++p) {
#pragma unroll
      for (int g = 0; g < Slices; ++g) {
        places[p][g] = operand[p] >= 0 ? place_of(operand[p], g) : Place{0, 0, 0, Width, 0};
      }
    }
#pragma unroll 1
    for (int i = 0; i < Width * Slices; ++i) {
      Parameters<T> parameters;
#pragma unroll 1
      for (int p = 0; p < kMaxParameters; ++p) {
        const Place& place = places[p][i / Width];
        const int lane = i % Width;
        T value = header.number[p];
        if (operand[p] >= 0) {
          const auto& tensor = arguments.operands[operand[p]];
          const bool present = place.first <= lane && lane < place.last;
          value = present ? load_as<T>(tensor.data, tensor.dtype, place.offset + lane * place.stride) : T(1);
        }
        parameters.value[p] = value;
      }
      with_parametric<T>(Header::op(header.control),
                         [&](auto evaluate) { staged[i] = evaluate(staged[i], parameters); });
    }
#pragma unroll
    for (int i = 0; i < Width * Slices; ++i) values[i] = staged[i];
  }
};

// One value through one stage that is not `cast`.
template <class T>
static __device__ __noinline__ T evaluate_one(Op op, T value, T a, T b, T c) {
  with_stage<T>(op, [&](auto evaluate) { value = evaluate(value, Parameters<T>{{a, b, c}}); });
  return value;
}

// The interpreter in little code, for kernels with many instances: a value at a time, through local memory. Several
// times slower than InterpretedChain, whose code would take each of them half a minute to compile; for speed these
// kernels run linked.
template <class T, int Rank>
struct ElementwiseChain {
  static constexpr bool kIsInline = false;
  const ChainArguments<T, Rank>& arguments;

  __device__ __forceinline__ bool empty() const { return arguments.count == 0; }
  __device__ __forceinline__ static constexpr bool has_operands() { return true; }  // or may have

  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ PlaceOf load(PlaceOf place_of) const {
    return place_of;
  }

  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ void apply(T (&values)[Width * Slices], const PlaceOf& place_of) const {
    if (arguments.count == 0) return;
    T staged[Width * Slices];
#pragma unroll
    for (int i = 0; i < Width * Slices; ++i) staged[i] = values[i];
#pragma unroll 1
    for (int i = 0; i < Width * Slices; ++i) {
      T value = staged[i];
#pragma unroll 1
      for (int s = 0; s < arguments.count; ++s) value = apply_stage(s, value, place_of, i / Width, i % Width);
      staged[i] = value;
    }
#pragma unroll
    for (int i = 0; i < Width * Slices; ++i) values[i] = staged[i];
  }

 private:
  using Header = typename ChainArguments<T, Rank>::Header;

  template <class PlaceOf>
  __device__ __forceinline__ T apply_stage(int s, T value, const PlaceOf& place_of, int slice, int lane) const {
    const Header& header = arguments.headers[s];
    if (Header::kind(header.control) == StageKind::cast) {
      with_element_type(Header::dtype(header.control), [&](auto* tag) {
        using Element = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
        value = convert<T>(convert<Element>(value));
      });
      return value;
    }
    T parameters[kMaxParameters];
#pragma unroll 1
    for (int p = 0; p < kMaxParameters; ++p) {
      parameters[p] = header.number[p];
      const int k = arguments.operand[s][p];
      if (k < 0) continue;
      const auto& tensor = arguments.operands[k];
      const Place place = place_of(k, slice);
      const bool present = place.first <= lane && lane < place.last;
      parameters[p] = present ? load_as<T>(tensor.data, tensor.dtype, place.offset + lane * place.stride) : T(1);
    }
    return evaluate_one(Header::op(header.control), value, parameters[0], parameters[1], parameters[2]);
  }
};

// Few models have chains of float64, and twenty kernels would each hold their long code.
template <int Rank, bool Operands>
struct InterpretedChain<double, Rank, Operands> : ElementwiseChain<double, Rank> {};

}  // namespace sluice
