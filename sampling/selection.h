// Selection by running sums, without sorting.
#pragma once

#include <algorithm>

namespace paceline {

// The first element, in the order of `less`, at which the sum of `weight` up to and with it is no
// longer below `limit` (`inclusive`: is above it); `last` if there is none. Elements before the
// result are those before it in order, in no order of their own. Cost: linear, by halving the range
// that holds the result.
template <typename Iterator, typename Less, typename Weight>
Iterator FirstReaching(Iterator first, Iterator last, Less less, Weight weight, double limit,
                       bool inclusive) {
  for (double before = 0; first != last;) {
    const Iterator middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, less);
    double sum = before;
    for (Iterator i = first; i <= middle; ++i) sum += weight(*i);
    if (inclusive ? sum <= limit : sum < limit) {
      before = sum;
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

}  // namespace paceline
