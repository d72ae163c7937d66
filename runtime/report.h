// What a run reports: JSON objects and the summary text. Field names: docs/telemetry.md.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/request.h"
#include "runtime/telemetry.h"

namespace paceline {

using Json = nlohmann::ordered_json;  // Keys stay in the order in which they are written here.

// What the engine's result does not say about its run.
struct RunInfo {
  std::string model;             // Path of the target.
  std::string engine;            // LanguageModel::Describe of the target.
  std::string draft = "none";    // Draft source by name.
  int32_t max_draft_tokens = 0;  // Tokens drafted a round at most; 0 without a draft.
  double load_ms = 0;            // Reading the models.
};

// Counters and measures of speculation. Rates without trials and means without rows are null.
Json TelemetryJson(const Telemetry& telemetry);

// Milliseconds of the parts, and tokens per second after the prompt.
Json TimingsJson(const Telemetry& telemetry, double prefill_ms, double load_ms);

// {raw, processed}: arrays with one {token, logprob, top} a token, `top` holding {token, logprob}.
// The log-probability of a token that a filter removed (-inf) is null.
Json LogProbsJson(const Choice& choice);

// The finish reason, or "error" if the request failed on the way.
std::string AnswerEnding(const Choice& choice);

// One answer: model, engine, choice, text, tokens, finish_reason, cumulative_logprob, usage, timings, speculation, seed; `logprobs` if
// they were asked for; `error` if the request failed on the way.
Json AnswerJson(const RunInfo& run, const GenerationResult& result, const Choice& choice);

// One line of a trace: choice, position, id, piece, p, q, u, decision, node. Not-a-number is null.
// `piece` may be any bytes; see JsonText.
Json TraceJson(uint32_t choice, const TokenTrace& trace, std::string_view piece);

// `json` on one line without the line end; `indent` >= 0 breaks it into lines. Ill-formed UTF-8
// becomes U+FFFD.
std::string JsonText(const Json& json, int indent = -1);

// What a summary is about: one answer, or several merged.
struct Summary {
  RunInfo run;
  Telemetry telemetry;
  int64_t num_answers = 0;
  int64_t prompt_tokens = 0;
  double prefill_ms = 0;
  std::map<std::string, int64_t> endings;  // Answers by finish reason; "error" if they failed.
  std::string rule;
  bool lossless = true;
  uint64_t seed = 0;  // As given or drawn for the run.

  // Adds an answer: counters and times are summed.
  void Add(const GenerationResult& result, const Choice& choice);
};

// A block of aligned lines for people, ending with a line break. Missing values print as `-`.
std::string SummaryText(const Summary& summary);

}  // namespace paceline
