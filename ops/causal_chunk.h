// One chunk of a stream: causal convolutions of weights with three dimensions, whose states are in cache slots, and
// transposed convolutions, which leave overlaps (kernels/operators/causal_conv1d/window.h). The states change last,
// after everything that can fail.
#pragma once

#include "kernels/operators/causal_conv1d/window.h"
#include "ops/causal.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/device.h"

namespace sluice {

// A checked call. `sizes` and `strides` are the result's.
struct Chunk {
  Convolution convolution;  // the convolution of the window without `pre`; or into sums, without bias and `post`
  Tensor x, cache;
  std::optional<Tensor> bias;
  NamedTensors indices = {};
  Chain pre = {}, post = {};
  Sequences states = {};
  int64_t columns = 0;  // columns of the history, or of the overlap
  Before padding = Before::zeros;
  std::vector<int64_t> sizes = {}, strides = {};

  const char* op() const { return convolution.op; }
  bool is_empty() const { return sizes[0] * sizes[1] * sizes[2] == 0; }
  bool has_cpp() const { return pre.program.has_cpp() || post.program.has_cpp(); }

  // Writes both chains into a kernel's params.
  template <class Params>
  void fill_chains(Params& params) const {
    const std::vector<int64_t> inputs = sizes_of(TensorView(x));
    pre.fill(params.pre, params.pre_operands, [&](std::size_t k) { return pre.strides(k, inputs); });
    post.fill(params.post, params.post_operands, [&](std::size_t k) { return post.strides(k, sizes); });
  }
};

// The arguments that both ops have, in the schemas' order.
struct GivenChunk {
  const Tensor& x;
  const Tensor& cache;
  const Tensor& weight;
  const std::optional<Tensor>& bias;
  const std::optional<Tensor>& cache_indices;
  const std::optional<Tensor>& has_initial_state;
  int64_t pad_slot;
  const std::optional<int64_t>& null_slot;
  int64_t stride, dilation, groups;
  const std::string& pre;
  const OptionalTensors& pre_operands;
  const std::string& post;
  const OptionalTensors& post_operands;
  const std::optional<Tensor>& packed;
  const std::string& precision;
};

// Input positions that one output sees, or outputs of one input; 0 for numbers that the shapes' checks refuse.
int64_t reach_of(const GivenChunk& arguments);

// x, and that weight and bias are like it.
void check_tensors(const char* op, const GivenChunk& arguments);

// Adds the chains, the cache and its slots to a chunk whose result's sizes are known.
void add_states(Chunk& chunk, const GivenChunk& arguments, const CacheArguments& cache);

// Refuses written memory that is read, too. `name` is the written tensor's.
void check_apart(const Chunk& chunk, const TensorView& written, const char* name);

// Runs the kernels of short chunks if they take the call: result, states and all. The states change first.
bool run_short(const Chunk& chunk, const DeviceScope& device, const TensorView& output);

// Zeros in the result of rows without a slot.
void clear_rows(const Chunk& chunk, const TensorView& output, const DeviceScope& device);

// An op's entry, its out variant, and a check of both. `kRun(chunk, out)`: without `out` the result is allocated.
template <auto kRun, const char* kCache>
struct ChunkEntries {
  static Tensor run(const Chunk& c) {
    aten::raise_version(c.op(), c.cache, kCache);
    return kRun(c, std::nullopt);
  }
  static void check_written(const Chunk& c, const std::optional<Tensor>& out) {
    if (!out.has_value()) return;
    const TensorView view(*out), x(c.x);
    check_out(c.op(), view, c.sizes, x.dtype, x);
    check_apart(c, view, "out");
    check_no_overlap(c.op(), view, kCache, TensorView(c.cache), false);
  }
  static void run_out(const Chunk& c, const Tensor& out) {
    check_written(c, out);
    aten::raise_version(c.op(), c.cache, kCache);
    aten::raise_version(c.op(), out);
    kRun(c, out);
  }
};

#define SLUICE_CHUNK_SLOTS                                                                            \
  "Tensor weight, Tensor? bias=None, *, Tensor? cache_indices=None, Tensor? has_initial_state=None, " \
  "int pad_slot_id=-1, int? null_slot_id=None, "
#define SLUICE_CHUNK_CHAINS                                                                                       \
  "str pre=\"\", Tensor[]? pre_operands=None, str post=\"\", Tensor[]? post_operands=None, Tensor? packed=None, " \
  "str precision=\"ieee\""

}  // namespace sluice
