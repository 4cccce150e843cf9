#include <cstdint>
#include <utility>

#include "kernels/operators/conv1d/link.h"
#include "ops/common/launch.h"
#include "ops/convolution/params.h"
#include "ops/convolution/plan.h"

namespace sluice {
namespace {

// Sets the addresses of operands in memory that is allocated by now, then enqueues.
class Runner {
 public:
  Runner(const DeviceScope& device, void* result, void* workspace)
      : device_(device), result_(static_cast<char*>(result)), workspace_(static_cast<char*>(workspace)) {}

  void operator()(KernelLaunch& launch) const {
    set(launch.params.input, launch.input);
    set(launch.params.output, launch.output);
    void* const own = launch.plan.workspace_bytes > 0 ? workspace_ + launch.workspace : nullptr;
    sluice::launch(device_, launch.params, launch.plan, launch.linked, own);
  }
  void operator()(TransposeLaunch& launch) const {
    set(launch.params.from, launch.from);
    set(launch.params.to, launch.to);
    sluice::launch(device_, launch.params);
  }
  void operator()(PassLaunch& launch) const {
    TransformParams& params = launch.pass.params;
    set(params.input, launch.input);
    set(params.output, launch.output);
    launch_pass(device_, launch.pass);
  }

 private:
  template <int Rank>
  void set(Operand<Rank>& operand, Memory memory) const {
    if (memory == Memory::given) return;
    operand.data = (memory == Memory::result ? result_ : workspace_) + reinterpret_cast<std::intptr_t>(operand.data);
  }

  const DeviceScope& device_;
  char* const result_;
  char* const workspace_;
};

}  // namespace

std::optional<Form> link(Launches& launches, const DeviceScope& device, long long elements, Action action) {
  std::optional<Form> answer;
  const auto noted = [&](Form form) {
    const void* const kernel = form.kernel;
    if (!answer.has_value() || answer->kernel != nullptr) answer = std::move(form);
    return kernel;
  };
  for (Launch& launch : launches.list) {
    auto* const pass = std::get_if<PassLaunch>(&launch);
    if (pass != nullptr && !pass->pass.params.program.empty()) noted(link_pass(device, pass->pass, {}, action));
    auto* const kernel = std::get_if<KernelLaunch>(&launch);
    if (kernel == nullptr || !launches.links) continue;
    Conv1dParams& params = kernel->params;
    if (is_chained(params, kernel->plan)) {
      const LinkRequest request = link_request(params, kernel->plan);
      kernel->linked = noted(choose_form(device.op(), request, device, elements, action));
    }
    if (kernel->plan.dense.applies_pre_first && !params.pre.empty()) {
      const LinkRequest request = to_channels_last_link_request(params);
      params.dense.linked_to_channels_last = noted(choose_form(device.op(), request, device, elements, action));
    }
  }
  return answer;
}

bool is_linked(const Launches& launches) {
  for (const Launch& launch : launches.list) {
    const auto* const kernel = std::get_if<KernelLaunch>(&launch);
    if (kernel != nullptr && kernel->linked == nullptr && is_chained(kernel->params, kernel->plan)) return false;
  }
  return true;
}

void run(Launches& launches, const DeviceScope& device, void* result, void* workspace) {
  const Runner runner(device, result, workspace);
  for (Launch& launch : launches.list) std::visit(runner, launch);
}

}  // namespace sluice
