// The kernels of a method: the rows of its kernels.def. A kernel has one name, in plans, of its device function and its
// __global__, and of its linked entry; most kernels' files have it too. The columns of a row:
//
//   SLUICE_KERNEL(name, file, module, dtypes, code, (pre), (post), (bounds), (traits), Arguments, call)
//
//   file, module   <file>.cuh has the device function and its interpreted form (launch.cuh); the linker reads all
//                  kernels of a module
//   dtypes         all, up_to_float32, half, float32, or tiles: up_to_float32 with each row of the folder's tiles.def
//   code           native: of every architecture; sm90a: of that one
//   pre, post      width and slices of its chains' calls (request.h); `word` is a word's elements, `dtype` the dtype;
//                  0, 0: it has no such chain
//   bounds         of the linked kernel: the arguments of __launch_bounds__
//   traits         the method's own columns, which its table explains
//   call           the device function, its chains open for the linker. With `Pipe`, the kernel has an entry for each
//                  row of rings.def. `Element` is the dtype's type; kBlocks and kChannels are the tile's.
//
// and of the launchers of a module, `enqueue` for each kernel and dtype:
//
//   SLUICE_LAUNCHER(module, Params, Kernel, code, count)
//
//   Params         their arguments are <Params>Params and <Params>Plan
//   Kernel         <Kernel>Kernel enumerates the table's kernels
//   code           or ptx_alone: for the architecture with PTX no other code
//   count          of dtypes, or tiles, that one source instantiates
//
// C++ takes the columns that it needs; kernel_sources.py writes the sources of launchers and modules.
//
//   entry    sluice_<op>_<name>_<dtype>[_<variant>]    sluice_conv1d_staged_rows_float16_sync
//   module   <op>_<module>_<dtype>[_<tile>]            conv1d_dense_float16_2x128
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/linking/request.h"

namespace sluice {

struct ChainShape {
  int width, slices;
};

struct ChainShapes {
  ChainShape pre, post;
};

struct KernelRow {
  std::string_view name, module;
  ChainShapes (*shapes)(DType dtype, int word);
};

#define SLUICE_KERNEL_ROW(name, file, module, dtypes, code, pre, post, ...)                               \
  sluice::KernelRow{#name, #module, []([[maybe_unused]] sluice::DType dtype, [[maybe_unused]] int word) { \
                      return sluice::ChainShapes{SLUICE_CHAIN_SHAPE pre, SLUICE_CHAIN_SHAPE post};        \
                    }},
#define SLUICE_CHAIN_SHAPE(width, slices) {width, slices}

// What follows the dtype in names, by number. Number 0 is nothing.
struct KernelVariants {
  std::vector<std::string_view> names = {""};
  bool have_modules = false;  // a module each
};

KernelVariants schedule_variants();  // by Schedule: nothing for `direct`

// The rows with all names, which are made once: a call looks them up by numbers.
class KernelTable {
 public:
  KernelTable(std::string_view op, std::span<const KernelRow> rows, const KernelVariants& variants = {});

  // A request for row `kernel`, with the shapes of its chains. Valid as long as the table.
  template <class Kernel, class Variant = int>
  LinkRequest request(Kernel kernel, DType dtype, Variant variant = {}) const {
    return request_of(static_cast<int>(kernel), dtype, static_cast<int>(variant));
  }

 private:
  struct Row {
    std::string entry, module;
    ChainShapes shapes;
  };

  LinkRequest request_of(int kernel, DType dtype, int variant) const;

  std::size_t variants_;
  std::vector<Row> rows_;
};

}  // namespace sluice
