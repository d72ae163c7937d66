// Settings that turn a row of logits into the distribution a token is drawn from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "sampling/draw.h"

namespace paceline {

// Which tokens of the history the penalties count.
enum class PenaltyScope {
  kDefault,          // repetition: prompt and output; frequency and presence: output only
  kPromptAndOutput,  // all three: prompt and output
  kOutput,           // all three: output only
  kLastN,            // all three: the last penalty_last_n of prompt and output
};

// How a filter treats tokens equal to the last one kept. The order is value descending, id
// ascending.
enum class Ties { kRank, kValue };

// Whether top-p keeps a token when the mass before it equals top_p exactly.
enum class TopPCompare { kLess, kLessOrEqual };

// Whether typical_p keeps all tokens as typical as the last one, as Hugging Face does, or exactly
// those whose mass first exceeds it, as llama.cpp does.
enum class TypicalMode { kHf, kLlama };

// Off-values leave a row as it is, bit for bit.
struct SamplingOptions {
  // Names of stages in the order they run, or one name of an order: default, hf, vllm, llama,
  // flashinfer-joint, which also sets ties, typical_mode and penalty_scope as that project has them.
  // Empty is default.
  std::vector<std::string> order;
  double guidance_scale = 1.0;  // Weight of the row over the unconditional one; 1 is off.
  std::vector<std::pair<int32_t, double>> logit_bias;  // Added to logits; -inf bans. Empty is off.
  std::vector<int32_t> allowed_ids;                    // The only ids that may come. Empty is off.
  std::vector<std::vector<int32_t>> bad_words;         // Sequences that may not be completed.
  int32_t min_tokens = 0;           // Output length before which eos_ids are masked; 0 is off.
  std::vector<int32_t> eos_ids;     // What min_tokens masks.
  double repetition_penalty = 1.0;  // > 0; 1 is off. Keskar et al. 2019.
  double frequency_penalty = 0.0;   // Subtracted once a time the token was seen; 0 is off.
  double presence_penalty = 0.0;    // Subtracted once if the token was seen; 0 is off.
  PenaltyScope penalty_scope = PenaltyScope::kDefault;
  int32_t penalty_last_n = 64;  // Window of kLastN.
  int32_t no_repeat_ngram_size = 0;  // No sequence of so many tokens comes twice; 0 is off.
  double dry_multiplier = 0.0;  // Of the penalty for going on with a repetition; 0 is off.
  double dry_base = 1.75;       // Its growth with each token of the repetition, >= 1.
  int32_t dry_allowed_length = 2;   // Repetitions shorter than this are free.
  int32_t dry_penalty_last_n = -1;  // Window looked at; -1 is the whole history, 0 is off.
  std::vector<std::vector<int32_t>> dry_breakers;  // Sequences that no repetition reaches past.
  double temperature = 1.0;     // 0 is the argmax: every filter is then skipped. 1 is off.
  double dynatemp_range = 0.0;  // Temperature moves by it with the row's entropy; 0 is off.
  double dynatemp_exponent = 1.0;  // Of the entropy's share of its largest value.
  double top_n_sigma = 0.0;  // Standard deviations below the largest logit kept; 0 is off.
  int32_t top_k = 0;            // Tokens kept; 0 and -1 are off.
  double top_p = 1.0;           // Mass kept; 1 is off. Holtzman et al. 2020.
  TopPCompare top_p_compare = TopPCompare::kLess;
  double min_p = 0.0;  // Share of the largest probability; 0 is off. Nguyen et al. 2024.
  double typical_p = 1.0;  // Mass of the most typical tokens kept; 1 is off. Meister et al. 2023.
  TypicalMode typical_mode = TypicalMode::kHf;
  double epsilon_cutoff = 0.0;  // Smallest probability kept; 0 is off. Hewitt et al. 2022.
  double eta_cutoff = 0.0;      // The same, less where the row is flat; 0 is off.
  double top_h = 0.0;             // Share of the entropy kept; 0 is off.
  double xtc_probability = 0.0;   // How often the likeliest tokens are left out; 0 is off.
  double xtc_threshold = 0.1;     // Probability that makes a token one of them; above 0.5 is off.
  double mirostat_tau = 0.0;      // Surprise aimed at, in bits, in place of all filters; 0 is off.
  double mirostat_eta = 0.1;      // How fast it is corrected.
  std::optional<DrawMethod> draw;  // Unset: Gumbel noise under rule `coupled`, else one number.
  Ties ties = Ties::kRank;
  int32_t min_keep = 1;  // Every filter leaves at least so many tokens.

  bool operator==(const SamplingOptions&) const = default;

  // kInvalidArgument naming the option, what is expected and what came. `vocab_size` bounds ids.
  absl::Status Validate(int32_t vocab_size) const;
};

}  // namespace paceline
