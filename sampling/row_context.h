// What a stage may know of the row it works on besides its logits.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "sampling/history.h"

namespace paceline {

// One row of one request. A stage is a function of (logits, options, row context) and of nothing
// else, which is what makes it exact at every verified row. Copyable; views belong to the sequence.
struct RowContext {
  HistoryView history;    // Everything before the token that this row predicts.
  StreamKey key;          // Coins of a stage are addressed, as all noise is.
  uint32_t position = 0;  // Absolute position of the token that this row predicts.
  uint8_t offset = 0;     // `position` minus the committed length at the start of the round.
  uint16_t node = 0;      // Node number of the row in a tree; 0 in a chain.
  bool xtc_by_round = false;  // The XTC coin has an address in each round and at each node, not one
                              // a position: for rules that look at noise behind a refusal.
  double mirostat_mu = 0;                // Largest surprise kept, in bits.
  std::span<const float> unconditional;  // Second row of guidance, at least vocab_size entries.
};

}  // namespace paceline
