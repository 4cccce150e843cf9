// The engine's ops, under the prefix of the library's device.
#pragma once

#include <memory>
#include <string>

#include "kernels/transfer/engine.h"
#include "ops/common/registration.h"

namespace sluice {

void define_transfer(Library& m, const std::string& prefix);
void implement_transfer(Library& m, const std::string& prefix);

// The driver of a GPU (ops/cuda/transfer.cpp) or of the host (ops/cpu/transfer.cpp). Raises if a GPU refuses.
std::unique_ptr<transfer::Driver> make_driver(int device, const transfer::EngineOptions& options);

}  // namespace sluice
