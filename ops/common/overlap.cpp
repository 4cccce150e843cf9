#include "ops/common/overlap.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

// The multiples 0, step, ..., (count - 1) * step; a sum takes one.
struct Term {
  int64_t step, count;
  int64_t greatest() const { return step * (count - 1); }
};

// Whether a sum of one multiple of each term can equal some number. Two tensors that share an element are two ways to
// the same address, so that decides it.
class Sums {
 public:
  explicit Sums(std::vector<Term> terms) {
    std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.step < b.step; });
    for (const Term& term : terms) {
      if (term.count > 1 && !merge(term)) terms_.push_back(term);
    }
    for (const Term& term : terms_) {
      const Prefix& before = prefixes_.back();
      prefixes_.push_back({before.greatest + term.greatest(), std::gcd(before.divisor, term.step)});
    }
  }

  // Also true if the search would take too long: callers refuse possible overlaps.
  bool may_be(int64_t target) {
    tries_left_ = kMostTries;
    return search(terms_.size(), target);
  }

 private:
  // The terms before one: their largest sum, and a common divisor of all their sums.
  struct Prefix {
    int64_t greatest, divisor;
  };
  // A strided view takes few tries: its strides are larger than all sums within them. This is a tenth of a millisecond.
  static constexpr int kMostTries = 20000;

  // A term whose step is a multiple of a smaller term's, without gaps, extends that term.
  bool merge(const Term& term) {
    for (Term& smaller : terms_) {
      if (term.step % smaller.step != 0 || term.step / smaller.step > smaller.count) continue;
      smaller.count += term.step / smaller.step * (term.count - 1);
      return true;
    }
    return false;
  }

  bool search(std::size_t terms, int64_t target) {
    const Prefix& all = prefixes_[terms];
    if (target < 0 || target > all.greatest) return false;
    if (target == 0) return true;
    if (target % all.divisor != 0) return false;
    if (terms == 1) return true;
    const Term& last = terms_[terms - 1];
    const int64_t rest = prefixes_[terms - 1].greatest;
    const int64_t least = target > rest ? (target - rest + last.step - 1) / last.step : 0;
    const int64_t most = std::min(last.count - 1, target / last.step);
    for (int64_t taken = least; taken <= most; ++taken) {
      if (--tries_left_ < 0 || search(terms - 1, target - taken * last.step)) return true;
    }
    return false;
  }

  std::vector<Term> terms_;  // by step
  std::vector<Prefix> prefixes_{{0, 0}};
  int tries_left_ = 0;
};

}  // namespace

bool overlap(const TensorView& a, const TensorView& b) {
  if (!a.has_memory || !b.has_memory) return false;
  if (a.elements() == 0 || b.elements() == 0) return false;
  const auto [a_begin, a_end] = a.extent();
  const auto [b_begin, b_end] = b.extent();
  if (a_end <= b_begin || b_end <= a_begin) return false;
  // a_begin + (a's offset of a byte) = b_begin + (b's offset of one), where b's is counted backwards from its last
  // byte.
  std::vector<Term> terms;
  for (const TensorView* tensor : {&a, &b}) {
    for (int64_t d = 0; d < tensor->rank; ++d) {
      if (tensor->strides[d] != 0) terms.push_back({tensor->strides[d] * tensor->element_size, tensor->sizes[d]});
    }
  }
  Sums between_elements(terms);
  // Offsets within elements are tried one by one, so that the sums keep the strides' common divisor.
  const int64_t target = b_end - 1 - a_begin;
  for (int64_t bytes = 0; bytes <= a.element_size - 1 + b.element_size - 1; ++bytes) {
    if (between_elements.may_be(target - bytes)) return true;
  }
  return false;
}

bool overlaps_itself(const TensorView& tensor) {
  if (tensor.elements() == 0) return false;
  std::vector<Term> dimensions;
  for (int64_t d = 0; d < tensor.rank; ++d) {
    if (tensor.sizes[d] > 1) dimensions.push_back({tensor.strides[d], tensor.sizes[d]});
  }
  std::sort(dimensions.begin(), dimensions.end(), [](const Term& a, const Term& b) { return a.step < b.step; });
  int64_t reach = 0;  // elements of the inner dimensions
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const Term& outer = dimensions[d];
    if (outer.step == 0) return true;
    if (outer.step <= reach) {
      // One to count - 1 steps of this dimension are compensated by inner steps, each in either direction: (inner +
      // reach) + step * (taken - 1) = reach - step, where inner + reach is counted from its minimum.
      std::vector<Term> terms{{outer.step, outer.count - 1}};
      for (std::size_t inner = 0; inner < d; ++inner) {
        terms.push_back({dimensions[inner].step, 2 * dimensions[inner].count - 1});
      }
      if (Sums(terms).may_be(reach - outer.step)) return true;
    }
    reach += outer.greatest();
  }
  return false;
}

}  // namespace sluice
