// Chains that the sequences' kernels apply without an interpreter or the linker: a SiLU, or a few products and sums
// with tensors of the input's layout, and SiLUs.
#pragma once

#include "kernels/operators/causal_conv1d/light_chain.cuh"
#include "kernels/operators/conv1d/depthwise/few_taps.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// A SiLU or nothing: a branch in one kernel instead of two kernels.
template <class Element>
struct SiluAtMost {
  bool is_silu;

  template <class Arguments>
  __device__ explicit SiluAtMost(const Arguments& arguments) : is_silu(arguments.count != 0) {}
  template <int Width, int Slices, class PlaceOf>
  __device__ int load(const PlaceOf&) const {
    return 0;
  }
  template <int Width, int Slices>
  __device__ void apply(float (&values)[Width * Slices], int) const {
    if (!is_silu) return;
#pragma unroll
    for (int i = 0; i < Width * Slices; ++i) values[i] = silu_of<Element>(values[i]);
  }
};
template <class Element>
struct SiluAtMostChains {
  using Pre = NoChain;
  using Post = SiluAtMost<Element>;
};

// Whether GateChain applies: a light chain of at most one tensor, whose quads of channels are as the input's.
inline bool is_gate(const Program& program, const Operand<3>* operands, DType dtype) {
  if (!is_light(program) || program.operands > 1) return false;
  for (int k = 0; k < program.operands; ++k) {
    const Operand<3>& tensor = operands[k];
    const bool has_quads = tensor.strides[1] == 1 && tensor.strides[0] % 4 == 0 && tensor.strides[2] % 4 == 0 &&
                           reinterpret_cast<std::uintptr_t>(tensor.data) % (4 * size_of(dtype)) == 0;
    if (tensor.dtype != dtype || !has_quads) return false;
  }
  return true;
}

// The tensor's quads are loaded ahead.
template <class Element>
struct GateChain {
  const ChainArguments<float, 3>& arguments;

  template <int Slices>
  struct Loads {
    Quad<Element> quads[Slices];
  };

  __device__ __forceinline__ bool empty() const { return arguments.count == 0; }

  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ Loads<Slices> load(const PlaceOf& place_of) const {
    static_assert(Width == 4);
    Loads<Slices> loads;
    const auto* const data = arguments.operands[0].template as<const Element>();
#pragma unroll
    for (int g = 0; g < Slices; ++g) {
      loads.quads[g] = {};
      const Place place = place_of(0, g);
      if (data != nullptr && place.last > 0) loads.quads[g] = Quad<Element>::load(data + place.offset);
    }
    return loads;
  }
  template <int Width, int Slices>
  __device__ __forceinline__ void apply(float (&values)[Width * Slices], const Loads<Slices>& loads) const {
    using Header = typename ChainArguments<float, 3>::Header;
#pragma unroll 1
    for (int s = 0; s < arguments.count; ++s) {
      const Header& header = arguments.headers[s];
      const Op op = Header::op(header.control);
      const bool is_silu = op == Op::silu || op == Op::silu_in_half;
      const LightOp light = is_silu ? LightOp::silu : op == Op::mul ? LightOp::mul : LightOp::add;
      LightStage<float> stage{light, header.number[0], header.number[1], {}};
      if (Header::kind(header.control) == StageKind::arithmetic) stage.operand = arguments.operands[0];
      run_light_stage<Element>(stage, values, [&](float* others) {
#pragma unroll
        for (int g = 0; g < Slices; ++g) loads.quads[g].unpack_to(others + g * Width);
      });
    }
  }
};
template <class Element>
struct GateChains {
  using Pre = GateChain<Element>;
  using Post = GateChain<Element>;
};

}  // namespace sluice
