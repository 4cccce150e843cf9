// A device made of threads: the h2d and d2h streams are one thread each, the compute stream is the calling thread.
#pragma once

#include <memory>

#include "kernels/transfer/driver.h"

namespace sluice::transfer {

std::unique_ptr<Driver> make_host_driver(int events);

}  // namespace sluice::transfer
