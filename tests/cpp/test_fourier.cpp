// The Fourier method: its plans, and its kernels' arithmetic on the host, thread after thread with the same functions
// (passes.h), against sums in float64.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/operators/conv1d/fourier/policy.h"
#include "kernels/operators/conv1d/link.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

Complex unit_root(int x) {
  const double angle = -2 * M_PI * x / kFourierPoints;
  return {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
}

Roots roots_of(int x) {
  Roots roots;
  for (int i = 0; i < kKeptRoots; ++i) roots.kept[i] = unit_root(x * kept_power(i));
  return roots;
}

// A team of all threads of a block, run one after another between two barriers.
struct HostTeam {
  std::vector<Points>& points;

  template <class Step>
  void each(const Step& step) const {
    for (int thread = 0; thread < kFourierThreads; ++thread) step(thread, points[thread]);
  }
  void sync_all() const {}
  void sync_row() const {}
  Roots all_roots(int thread) const { return roots_of(thread); }
  Roots row_roots(int thread) const { return roots_of(kWithinRow * lane_of_row(thread)); }
};

struct Block {
  std::vector<Points> points = std::vector<Points>(kFourierThreads);
  std::vector<Complex> exchange = std::vector<Complex>(kExchangePlaces);

  Complex at(int n) const { return points[n % kFourierThreads].at(n / kFourierThreads); }
  void set(int n, Complex value) { points[n % kFourierThreads].set(n / kFourierThreads, value); }
  void there() { sluice::there(HostTeam{points}, exchange.data()); }
  void back() { sluice::back(HostTeam{points}, exchange.data()); }
};

unsigned bits_of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7fffffffu;
}
float float_of(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// A row of one channel for each sample, with one filter, as fourier.cuh and spectra.cu compute it.
struct Row {
  std::vector<std::vector<float>> inputs;  // the inputs of each sample
  std::vector<float> taps;
  int padding;
};

float input_at(const Row& row, int batch, long long position) {
  const auto& inputs = row.inputs[batch];
  return position >= 0 && position < static_cast<long long>(inputs.size()) ? inputs[position] : 0.0f;
}

std::vector<std::vector<float>> run(const Row& row, const FourierPlan& plan, int outputs) {
  const int taps = static_cast<int>(row.taps.size());
  unsigned largest_tap = 0;
  for (float tap : row.taps) largest_tap = max_of(largest_tap, bits_of(tap));
  const int filter_exponent = biased_exponent(largest_tap);
  std::vector<Block> spectra(plan.partitions);
  for (int partition = 0; partition < plan.partitions; ++partition) {
    const float down = float_of(bits_of_power(kExponentOfOne - filter_exponent));
    for (int i = 0; i < min_of(plan.partition_taps, taps - partition * plan.partition_taps); ++i) {
      spectra[partition].set(i, {row.taps[partition * plan.partition_taps + i] * down, 0});
    }
    spectra[partition].there();
  }
  std::vector<std::vector<float>> results(row.inputs.size(), std::vector<float>(outputs, kNaN));
  for (long long pair = 0; pair < plan.pairs; ++pair) {
    unsigned largest[2] = {0, 0};
    const auto value = [&](int which, int partition, int n) {
      const long long index = 2 * pair + which;
      if (index >= plan.segments) return 0.0f;
      const int batch = static_cast<int>(index / plan.segments_per_row);
      const long long begin = index % plan.segments_per_row * plan.segment;
      return input_at(row, batch, begin - row.padding + static_cast<long long>(partition) * plan.partition_taps + n);
    };
    for (int partition = 0; partition < plan.partitions; ++partition) {
      for (int n = 0; n < kFourierPoints; ++n) {
        for (int w : {0, 1}) largest[w] = max_of(largest[w], bits_of(value(w, partition, n)));
      }
    }
    const bool finite =
        is_finite_magnitude(largest[0]) && is_finite_magnitude(largest[1]) && is_finite_magnitude(largest_tap);
    Block sums;
    for (auto& points : sums.points) points = {};
    for (int partition = 0; partition < plan.partitions; ++partition) {
      Block inputs;
      float down[2] = {1, 1};
      for (int w : {0, 1}) {
        if (finite) down[w] = float_of(bits_of_power(kExponentOfOne - biased_exponent(largest[w])));
      }
      for (int n = 0; n < kFourierPoints; ++n)
        inputs.set(n, {value(0, partition, n) * down[0], value(1, partition, n) * down[1]});
      if (finite) {
        inputs.there();
        for (int n = 0; n < kFourierPoints; ++n) {
          const Complex factor = spectra[partition].at(n);
          sums.set(n, add_product(inputs.at(n), {factor.re, -factor.im}, sums.at(n)));
        }
        continue;
      }
      for (int k = 0; k < min_of(plan.partition_taps, taps - partition * plan.partition_taps); ++k) {
        const float tap = row.taps[partition * plan.partition_taps + k];
        for (int n = 0; n < kFourierPoints; ++n) {
          const Complex input = inputs.at((n + k) % kFourierPoints), sum = sums.at(n);
          sums.set(n, {std::fmaf(tap, input.re, sum.re), std::fmaf(tap, input.im, sum.im)});
        }
      }
    }
    if (finite) sums.back();
    for (int w : {0, 1}) {
      const long long index = 2 * pair + w;
      if (index >= plan.segments) continue;
      const Scale scale = finite ? scale_of(biased_exponent(largest[w]), filter_exponent) : Scale{0, 0};
      const long long begin = index % plan.segments_per_row * plan.segment;
      for (int n = 0; n < min_of<long long>(plan.segment, outputs - begin); ++n) {
        const float sum = w == 0 ? sums.at(n).re : sums.at(n).im;
        results[index / plan.segments_per_row][begin + n] =
            std::fmaf(sum * float_of(bits_of_power(scale.first)), float_of(bits_of_power(scale.second)), 0.0f);
      }
    }
  }
  return results;
}

Conv1dProblem long_filter(long long batch, long long channels, long long length, int taps, DType dtype) {
  Conv1dProblem problem = depthwise(batch, channels, length, taps, dtype);
  problem.in_rows = true;
  problem.length = length, problem.padding = taps - 1;
  return problem;
}

struct Case {
  Row row;
  FourierPlan plan;
  int outputs;
};

Case random_case(std::mt19937_64& random, float scale = 1.0f) {
  const auto in = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  std::normal_distribution<float> normal;
  Case made;
  const int batch = in(1, 3), taps = in(0, 3) == 0 ? in(2000, 9000) : in(1, 1500), length = in(1, 9000);
  made.row.padding = in(0, 2) == 0 ? taps - 1 : in(max_of(0, (taps - length + 1) / 2), taps + 9);
  made.outputs = max_of(1, length + (in(0, 1) == 0 ? 1 : 2) * made.row.padding - taps + 1);
  made.row.inputs.assign(batch, std::vector<float>(length));
  made.row.taps.resize(taps);
  for (auto& inputs : made.row.inputs) {
    for (float& value : inputs) value = normal(random) * scale;
  }
  for (float& tap : made.row.taps) tap = normal(random);
  Conv1dProblem problem = long_filter(batch, 1, length, taps, DType::float32);
  problem.output_length = made.outputs, problem.padding = made.row.padding;
  made.plan = plan_fourier(problem, kH200).fourier;
  return made;
}

// The error against float64 at some positions, where the window is finite; elsewhere results must not be finite.
double error_of(const Case& made, std::mt19937_64& random) {
  const auto results = run(made.row, made.plan, made.outputs);
  double wrong = 0, all = 0;
  for (std::size_t batch = 0; batch < results.size(); ++batch) {
    for (int trial = 0; trial < 200; ++trial) {
      const int t = static_cast<int>(random() % made.outputs);
      double wanted = 0;
      for (std::size_t k = 0; k < made.row.taps.size(); ++k) {
        wanted += static_cast<double>(made.row.taps[k]) *
                  input_at(made.row, static_cast<int>(batch), t - made.row.padding + static_cast<long long>(k));
      }
      const double result = results[batch][t];
      if (!std::isfinite(wanted)) {
        CHECK(std::isnan(wanted) ? std::isnan(result) : result == wanted);
        continue;
      }
      wrong += (result - wanted) * (result - wanted), all += wanted * wanted;
    }
  }
  return all > 0 ? std::sqrt(wrong / all) : wrong;
}

}  // namespace

TEST(a_fourier_transform_is_one_and_its_inverse) {
  std::mt19937_64 random(20);
  std::normal_distribution<double> normal;
  Block block;
  std::vector<Complex> values(kFourierPoints);
  for (int n = 0; n < kFourierPoints; ++n) {
    values[n] = {static_cast<float>(normal(random)), static_cast<float>(normal(random))};
    block.set(n, values[n]);
  }
  block.there();
  double wrong = 0, all = 0;
  for (int trial = 0; trial < 64; ++trial) {
    const int k = static_cast<int>(random() % kFourierPoints);
    double re = 0, im = 0;
    for (int n = 0; n < kFourierPoints; ++n) {
      const double angle = -2 * M_PI * (static_cast<long long>(n) * k % kFourierPoints) / kFourierPoints;
      re += values[n].re * std::cos(angle) - values[n].im * std::sin(angle);
      im += values[n].re * std::sin(angle) + values[n].im * std::cos(angle);
    }
    // Thread 16 k0 + k1 has frequencies k0 + 16 k1 + 256 k2.
    const int k0 = k % 16, k1 = k / 16 % 16, k2 = k / 256;
    const Complex found = block.points[16 * k0 + k1].at(k2);
    wrong += (found.re - re) * (found.re - re) + (found.im - im) * (found.im - im), all += re * re + im * im;
  }
  CHECK(std::sqrt(wrong / all) < 4e-7);
  block.back();
  wrong = all = 0;
  for (int n = 0; n < kFourierPoints; ++n) {
    const double re = block.at(n).re / kFourierPoints - values[n].re,
                 im = block.at(n).im / kFourierPoints - values[n].im;
    wrong += re * re + im * im, all += values[n].re * values[n].re + values[n].im * values[n].im;
  }
  CHECK(std::sqrt(wrong / all) < 6e-7);
}

// Shared memory serves 16 lanes of 8 bytes at once: one in each pair of banks.
TEST(fourier_exchanges_have_no_bank_conflicts_and_lose_nothing) {
  const auto check = [](const auto& place) {
    std::set<int> places;
    for (int i = 0; i < kFourierRadix; ++i) {
      for (int first = 0; first < kFourierThreads; first += 16) {
        std::set<int> banks;
        for (int thread = first; thread < first + 16; ++thread) {
          const int at = place(thread, i);
          CHECK(at >= 0 && at < kExchangePlaces && at == place(thread, 0) + place(0, i));
          banks.insert(at % 16), places.insert(at);
        }
        CHECK(banks.size() == 16);
      }
    }
    CHECK(static_cast<int>(places.size()) == kFourierPoints);
    return places;
  };
  CHECK(check(OfAll{}) == check(InRow{}) && check(Across{}) == check(Along{}));
}

TEST(fourier_segments_are_exact_to_float32) {
  std::mt19937_64 random(21);
  double largest = 0;
  for (int trial = 0; trial < 60; ++trial) {
    for (float scale : {1.0f, 1e-30f, 1e30f}) largest = max_of(largest, error_of(random_case(random, scale), random));
  }
  CHECK(largest < 1e-6);
}

TEST(what_is_not_finite_stays_in_its_windows_after_a_fourier_transform) {
  std::mt19937_64 random(22);
  for (int trial = 0; trial < 24; ++trial) {
    Case made = random_case(random);
    auto& inputs = made.row.inputs[random() % made.row.inputs.size()];
    for (int i = 0; i < 1 + trial % 3; ++i) {
      inputs[random() % inputs.size()] = trial % 3 == 0 ? kNaN : trial % 3 == 1 ? kInfinity : -kInfinity;
    }
    if (trial % 7 == 0) made.row.taps[random() % made.row.taps.size()] = kInfinity;
    CHECK(error_of(made, random) < 1e-6);
  }
}

// A loud row does not harm a quiet one in the same block.
TEST(a_fourier_segments_error_is_relative_to_its_own_inputs) {
  std::mt19937_64 random(23);
  Case made = random_case(random);
  Conv1dProblem problem = long_filter(2, 1, 3000, 500, DType::float32);
  made.row.taps.resize(500, 0.5f), made.row.padding = 499, made.outputs = 3000;
  made.row.inputs.assign(2, std::vector<float>(3000));
  std::normal_distribution<float> normal;
  for (float& value : made.row.inputs[0]) value = normal(random) * 1e-20f;
  for (float& value : made.row.inputs[1]) value = normal(random) * 1e20f;
  made.plan = plan_fourier(problem, kH200).fourier;
  CHECK(made.plan.pairs == 1);
  Case quiet = made;
  quiet.row.inputs[1].assign(3000, 0.0f);
  CHECK(error_of(quiet, random) < 1e-6);
  CHECK(error_of(made, random) < 1e-6);  // with the loud row
  made.row.inputs[1] = made.row.inputs[0];
  for (float& value : made.row.inputs[1]) value *= float_of(bits_of_power(100));
  const auto both = run(made.row, made.plan, 3000);
  double wrong = 0, all = 0;
  for (int t = 0; t < 3000; ++t) {
    const double wanted = both[1][t], found = static_cast<double>(both[0][t]) * std::exp2(100.0);
    wrong += (found - wanted) * (found - wanted), all += wanted * wanted;
  }
  CHECK(std::sqrt(wrong / all) < 1e-6);
}

// docs/limits.md: the error of each result, not only of all together.
TEST(a_loud_sample_costs_its_segment_what_the_documents_say) {
  std::mt19937_64 random(25);
  double largest = 0;
  for (int trial = 0; trial < 12; ++trial) {
    Case made = random_case(random);
    auto& inputs = made.row.inputs[0];
    inputs[random() % inputs.size()] = 1e6f;
    const auto results = run(made.row, made.plan, made.outputs);
    double inputs_norm = 0, taps_norm = 0;
    for (float value : inputs) inputs_norm += static_cast<double>(value) * value;
    for (float tap : made.row.taps) taps_norm += static_cast<double>(tap) * tap;
    for (int sample = 0; sample < 300; ++sample) {
      const int t = static_cast<int>(random() % made.outputs);
      double wanted = 0;
      for (std::size_t k = 0; k < made.row.taps.size(); ++k) {
        wanted += static_cast<double>(made.row.taps[k]) *
                  input_at(made.row, 0, t - made.row.padding + static_cast<long long>(k));
      }
      largest = max_of(largest, std::fabs(results[0][t] - wanted) / std::sqrt(inputs_norm * taps_norm));
    }
  }
  CHECK(largest < 1e-7);
}

TEST(a_fourier_plan_keeps_what_the_kernel_relies_on) {
  std::mt19937_64 random(24);
  const auto in = [&](double low, double high) {
    return static_cast<long long>(std::exp2(low + (high - low) * static_cast<double>(random() % 1000) / 1000));
  };
  int taken = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    const DType dtype = trial % 3 == 0 ? DType::float16 : DType::float32;
    const int taps = static_cast<int>(in(7, 17));
    Conv1dProblem problem = long_filter(in(0, 5), in(0, 10), in(0, 21), taps, dtype);
    problem.padding = trial % 2 == 0 ? taps - 1 : taps / 2;
    problem.output_length = max_of(1LL, problem.length + (trial % 2 == 0 ? 1 : 2) * problem.padding - taps + 1);
    const Conv1dPlan plan = plan_conv1d(problem, {}, kH200, true);
    CHECK((plan.which == Conv1dMethod::fourier) == suits_fourier(problem, kH200));
    if (plan.which != Conv1dMethod::fourier) continue;
    ++taken;
    const FourierPlan& own = plan.fourier;
    CHECK(own.partitions >= 1 && own.partition_taps >= 1 && own.segment >= 1);
    CHECK(1LL * own.partitions * own.partition_taps >= taps && (own.partitions - 1LL) * own.partition_taps < taps);
    CHECK(own.segment + own.partition_taps - 1 <= kFourierPoints && own.segment % kSegmentMultiple == 0);
    CHECK(own.segments_per_row * own.segment >= problem.output_length);
    CHECK((own.segments_per_row - 1) * own.segment < problem.output_length);
    CHECK(own.segments == problem.batch * own.segments_per_row && 2 * own.pairs >= own.segments);
    CHECK(2 * own.pairs <= own.segments + 1 && plan.grid == own.pairs * problem.channels);
    CHECK(plan.threads == kFourierThreads && plan.shared_memory <= 48 * 1024 && plan.resident_blocks >= 2);
    CHECK(plan.workspace_bytes >= (kRootWords + problem.channels * own.partitions * kSpectrumWords) * kWordBytes);
    CHECK(plan.workspace_bytes <= policy_of(kH200, kFourierPolicies).most_workspace + 1);
    Conv1dParams params{};
    const std::string_view kernel = link_request(params, plan).kernel;
    CHECK(kernel ==
          (own.partitions > 1 ? "sluice_conv1d_fourier_partitioned_float32" : "sluice_conv1d_fourier_float32"));
  }
  CHECK(taken > 1000 && taken < 4500);
}

TEST(very_long_filters_are_transformed_where_that_suits) {
  Conv1dProblem problem = long_filter(16, 2, 480000, 511, DType::float32);
  const auto is_taken = [&](auto&& change) {
    Conv1dProblem other = problem;
    change(other);
    return plan_conv1d(other, {}, kH200, true).which == Conv1dMethod::fourier;
  };
  CHECK(is_taken([](Conv1dProblem&) {}) && is_taken([](Conv1dProblem& p) { p.taps = 64; }));
  CHECK(is_taken([](Conv1dProblem& p) { p.taps = 70000; }) && !is_taken([](Conv1dProblem& p) { p.taps = 63; }));
  CHECK(!is_taken([](Conv1dProblem& p) { p.dilation = 2; }) && !is_taken([](Conv1dProblem& p) { p.stride = 2; }));
  CHECK(!is_taken([](Conv1dProblem& p) { p.in_rows = false; }));
  CHECK(!is_taken([](Conv1dProblem& p) { p.dtype = DType::float64; }));
  CHECK(is_taken([](Conv1dProblem& p) { p.dtype = DType::float16, p.taps = 4096; }));
  CHECK(!is_taken([](Conv1dProblem& p) { p.dtype = DType::float16, p.taps = 300; }));
  CHECK(!is_taken([](Conv1dProblem& p) { p.output_length = 100; }));  // nearly empty transforms
  CHECK(!is_taken([](Conv1dProblem& p) { p.length = 1LL << 30; }));
  CHECK(plan_conv1d(problem, forced(Schedule::direct), kH200, true).which == Conv1dMethod::depthwise);
}
