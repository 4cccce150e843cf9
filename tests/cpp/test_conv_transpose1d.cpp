// Polyphase components: their taps, inputs and results are the transposed convolution's, each once.
#include <cmath>
#include <random>
#include <vector>

#include "kernels/operators/conv_transpose1d/conv_transpose1d.h"
#include "kernels/operators/conv_transpose1d/policy.h"
#include "tests/cpp/check.h"

namespace sluice {
namespace {

// One channel of random sizes and values.
struct Problem {
  std::vector<double> input, weight, output, operand;
  Conv1dParams params;

  explicit Problem(std::mt19937& random) {
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    const int length = draw(1, 12), taps = draw(1, 9), stride = draw(1, 5), dilation = draw(1, 4);
    const int spread = (length - 1) * stride + dilation * (taps - 1) + 1 + draw(0, std::max(stride, dilation) - 1);
    const int padding = draw(0, (spread - 1) / 2);
    input.resize(length), weight.resize(taps), output.resize(spread - 2 * padding, NAN), operand.resize(output.size());
    for (auto* values : {&input, &weight, &operand}) {
      for (double& value : *values) value = std::uniform_real_distribution<double>(0.5, 1.5)(random);
    }
    params = Conv1dParams{{.input = {input.data(), DType::float64, {0, 0, 1}},
                           .output = {output.data(), DType::float64, {0, 0, 1}},
                           .weight = {weight.data(), DType::float64, {0, 1}},
                           .bias = {},
                           .history = {},
                           .batch = 1,
                           .channels = 1,
                           .length = length,
                           .output_length = static_cast<long long>(output.size()),
                           .multiplier = 1,
                           .taps = taps,
                           .stride = stride,
                           .padding = padding,
                           .dilation = dilation}};
    params.dense = {.weight = {weight.data(), DType::float64, {0, 0, 1}}, .input_channels = 1};
    params.post.operands = 1;
    params.post_operands[0] = {operand.data(), DType::float64, {0, 0, 1}};
  }

  std::vector<double> definition() const {
    std::vector<double> result(output.size());
    for (std::size_t i = 0; i < input.size(); ++i) {
      for (std::size_t k = 0; k < weight.size(); ++k) {
        const long long t =
            static_cast<long long>(i) * params.stride + static_cast<long long>(k) * params.dilation - params.padding;
        if (t >= 0 && t < static_cast<long long>(result.size())) result[t] += input[i] * weight[k];
      }
    }
    for (std::size_t t = 0; t < result.size(); ++t) result[t] += operand[t];
    return result;
  }
};

// Computes what conv1d's kernels do.
void convolve(const Conv1dParams& p) {
  CHECK(p.stride == 1 && p.length > 0 && p.padding >= 0 && p.taps > 0);
  // Some kernels rely on a padded input no longer than what the results reach.
  CHECK(p.padding + p.length <= p.output_length + (p.taps - 1) * p.dilation);
  CHECK(p.dense.weight.data == p.weight.data && p.dense.weight.strides[2] == p.weight.strides[1]);
  for (long long t = 0; t < p.output_length; ++t) {
    double sum = 0;
    for (int k = 0; k < p.taps; ++k) {
      const long long i = t - p.padding + k * p.dilation;
      const bool exists = i >= 0 && i < p.length;
      if (exists) sum += p.weight.as<double>()[k * p.weight.strides[1]] * p.input.as<double>()[i * p.input.strides[2]];
    }
    double& result = p.output.as<double>()[t * p.output.strides[2]];
    CHECK(std::isnan(result));  // not written before
    result = sum + p.post_operands[0].as<double>()[t * p.post_operands[0].strides[2]];
  }
}

TEST(polyphase_components_make_up_a_transposed_convolution) {
  std::mt19937 random(std::random_device{}());
  int by_components = 0, by_aten = 0;
  for (int n = 0; n < 20000; ++n) {
    Problem problem(random);
    if (transposed_by_aten(problem.params, /*groups=*/1, /*is_depthwise=*/true) != nullptr) {
      ++by_aten;
      continue;
    }
    ++by_components;
    for (long long first = 0; first < component_count(problem.params); ++first) {
      convolve(component_params(problem.params, polyphase_component(problem.params, first)));
    }
    const std::vector<double> wanted = problem.definition();
    double error = 0;
    for (std::size_t t = 0; t < wanted.size(); ++t) error = std::max(error, std::abs(problem.output[t] - wanted[t]));
    CHECK(error < 1e-12);
  }
  CHECK(by_components > 4000 && by_aten > 4000);
}

TEST(a_polyphase_component_has_every_stride_th_tap) {
  std::mt19937 random(1);
  Problem problem(random);
  Conv1dTensors& p = problem.params;  // a layer of HiFi-GAN
  p.length = 430, p.taps = 16, p.stride = 8, p.padding = 4, p.dilation = 1, p.output_length = 3440;
  CHECK(component_count(p) == 8);
  for (long long first = 0; first < 8; ++first) {
    const PolyphaseComponent component = polyphase_component(p, first);
    CHECK(component.outputs == 430 && component.taps == 2 && component.tap_step == 8 && component.dilation == 1);
    CHECK(component.first_tap == (first + 4) % 8 && component.offset == (first + 4) / 8);
  }
}

TEST(a_transposed_convolution_is_computed_by_components_where_each_has_a_tap) {
  std::mt19937 random(1);
  Problem problem(random);
  Conv1dTensors& p = problem.params;
  p.length = 500, p.taps = 12, p.stride = 2, p.padding = 5, p.dilation = 1, p.output_length = 1000;
  CHECK(transposed_by_aten(p, 1, true) == nullptr && transposed_by_aten(p, 1, false) == nullptr);
  p.dilation = 2;  // odd results have no tap
  CHECK(transposed_by_aten(p, 1, true) != nullptr);
  p.dilation = 3;
  CHECK(transposed_by_aten(p, 1, true) == nullptr);
  p.stride = 1;
  CHECK(transposed_by_aten(p, 1, true) == nullptr && transposed_by_aten(p, 1, false) == nullptr);
  p.stride = kMostComponents + 1, p.taps = 40, p.dilation = 1;
  CHECK(transposed_by_aten(p, 1, true) != nullptr);
  p.output_length = kMostComponents;
  CHECK(transposed_by_aten(p, 1, true) == nullptr);
}

}  // namespace
}  // namespace sluice
