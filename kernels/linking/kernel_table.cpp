#include "kernels/linking/kernel_table.h"

#include "kernels/shared/pipeline/schedule.h"

namespace sluice {
namespace {

std::string name_of(std::string_view op, std::string_view kernel, DType dtype, std::string_view variant) {
  std::string name = std::string(op) + "_" + std::string(kernel) + "_" + name_of(dtype);
  return variant.empty() ? name : name + "_" + std::string(variant);
}

}  // namespace

KernelVariants schedule_variants() {
  KernelVariants variants;
  for (int s = 1; s < kSchedules; ++s) variants.names.push_back(name_of(static_cast<Schedule>(s)));
  return variants;
}

KernelTable::KernelTable(std::string_view op, std::span<const KernelRow> rows, const KernelVariants& variants)
    : variants_(variants.names.size()) {
  for (const KernelRow& row : rows) {
    for (DType dtype : kDTypes) {
      for (std::string_view variant : variants.names) {
        rows_.push_back({.entry = "sluice_" + name_of(op, row.name, dtype, variant),
                         .module = name_of(op, row.module, dtype, variants.have_modules ? variant : ""),
                         .shapes = row.shapes(dtype, word_elements(dtype))});
      }
    }
  }
}

LinkRequest KernelTable::request_of(int kernel, DType dtype, int variant) const {
  const auto of_kernel = static_cast<std::size_t>(kernel) * std::size(kDTypes) + static_cast<std::size_t>(dtype);
  const Row& row = rows_[of_kernel * variants_ + static_cast<std::size_t>(variant)];
  LinkRequest request{.module = row.module, .kernel = row.entry, .wide = dtype == DType::float64};
  request.pre.width = row.shapes.pre.width, request.pre.slices = row.shapes.pre.slices;
  request.post.width = row.shapes.post.width, request.post.slices = row.shapes.post.slices;
  return request;
}

}  // namespace sluice
