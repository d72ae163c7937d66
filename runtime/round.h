// The round: plan, draft, score, verify, cut, commit.
#pragma once

#include <span>

#include "runtime/sequence.h"
#include "target/target.h"

namespace paceline {

// One round for every sequence of `batch`, all of them live: chains, trees and plain decoding (an
// empty draft) alike. One target pass scores all drafts. A sequence that fails is ended with its
// status; the others go on.
void RunRound(std::span<Sequence* const> batch, Target& target);

}  // namespace paceline
