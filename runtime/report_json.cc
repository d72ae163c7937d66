#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "runtime/report.h"

namespace paceline {
namespace {

Json OrNull(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

// JSON has no infinities and no NaN.
Json FiniteOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json TokenLogProbJson(const TokenLogProb& entry) {
  return {{"token", entry.token}, {"logprob", FiniteOrNull(entry.log_prob)}};
}

Json LogProbListJson(std::span<const LogProbs> tokens) {
  Json list = Json::array();
  for (const LogProbs& token : tokens) {
    Json entry = TokenLogProbJson(token.emitted);
    entry["top"] = Json::array();
    for (const TokenLogProb& other : token.top) entry["top"].push_back(TokenLogProbJson(other));
    list.push_back(std::move(entry));
  }
  return list;
}

void AddPositions(const Telemetry& telemetry, Json& json) {
  json["accepted_per_position"] = telemetry.AcceptedPerPosition();
  Json conditional = Json::array();
  for (const std::optional<double>& rate : telemetry.ConditionalAcceptancePerPosition()) {
    conditional.push_back(OrNull(rate));
  }
  json["conditional_acceptance_per_position"] = std::move(conditional);
  json["acceptance_histogram"] = telemetry.acceptance_histogram;
}

void AddMeasures(const Telemetry& telemetry, Json& json) {
  json["expected_acceptance"] = OrNull(telemetry.expected_acceptance.Value());
  json["judged_acceptance"] = OrNull(telemetry.JudgedAcceptance());
  const Interval interval = telemetry.JudgedAcceptanceInterval();
  json["judged_acceptance_interval"] = {interval.low, interval.high};
  json["total_variation"] = OrNull(telemetry.total_variation.Value());
  json["kl_divergence"] = OrNull(telemetry.kl_divergence.Value());
  json["num_infinite_kl"] = telemetry.num_infinite_kl;
  json["deviation"] = OrNull(telemetry.deviation.Value());
  json["entropy_bits_raw"] = OrNull(telemetry.entropy_bits_raw.Value());
  json["entropy_bits_warped"] = OrNull(telemetry.entropy_bits_warped.Value());
  json["survivors"] = OrNull(telemetry.survivors.Value());
}

}  // namespace

Json TelemetryJson(const Telemetry& telemetry) {
  Json json;
  json["num_rounds"] = telemetry.num_rounds;
  json["num_drafts"] = telemetry.num_drafts;
  json["num_draft_tokens"] = telemetry.num_draft_tokens;
  json["num_accepted_tokens"] = telemetry.num_accepted_tokens;
  json["num_emitted_tokens"] = telemetry.num_emitted_tokens;
  json["acceptance_rate"] = OrNull(telemetry.AcceptanceRate());
  json["mean_acceptance_length"] = OrNull(telemetry.MeanAcceptanceLength());
  json["tokens_per_round"] = OrNull(telemetry.TokensPerRound());
  AddPositions(telemetry, json);
  AddMeasures(telemetry, json);
  return json;
}

Json TimingsJson(const Telemetry& telemetry, double prefill_ms, double load_ms) {
  Json json;
  json["load_ms"] = load_ms;
  json["prefill_ms"] = prefill_ms;
  json["draft_ms"] = telemetry.draft_ms;
  json["target_ms"] = telemetry.target_ms;
  json["verify_ms"] = telemetry.verify_ms;
  json["rounds_ms"] = telemetry.rounds_ms;
  json["tokens_per_second"] = OrNull(telemetry.TokensPerSecond());
  return json;
}

Json LogProbsJson(const Choice& choice) {
  Json json;
  json["raw"] = LogProbListJson(choice.raw_logprobs);
  json["processed"] = LogProbListJson(choice.processed_logprobs);
  return json;
}

std::string AnswerEnding(const Choice& choice) {
  return choice.status.ok() ? std::string(FinishReasonName(choice.finish_reason)) : "error";
}

Json AnswerJson(const RunInfo& run, const GenerationResult& result, const Choice& choice) {
  const auto completion = static_cast<int64_t>(choice.tokens.size());
  Json speculation;
  speculation["rule"] = result.rule;
  speculation["lossless"] = result.lossless;
  speculation["draft"] = run.draft;
  speculation["max_draft_tokens"] = run.max_draft_tokens;
  speculation.update(TelemetryJson(choice.telemetry));
  Json json;
  json["model"] = run.model;
  json["engine"] = run.engine;
  json["choice"] = choice.stream;
  json["text"] = choice.text;
  json["tokens"] = choice.tokens;
  json["finish_reason"] = AnswerEnding(choice);
  json["cumulative_logprob"] = FiniteOrNull(choice.cumulative_log_prob);
  json["usage"] = {{"prompt_tokens", result.prompt_tokens},
                   {"completion_tokens", completion},
                   {"total_tokens", result.prompt_tokens + completion}};
  json["timings"] = TimingsJson(choice.telemetry, result.prefill_ms, run.load_ms);
  json["speculation"] = std::move(speculation);
  json["seed"] = result.seed;
  if (!choice.raw_logprobs.empty() || !choice.processed_logprobs.empty()) {
    json["logprobs"] = LogProbsJson(choice);
  }
  if (!choice.status.ok()) json["error"] = std::string(choice.status.message());
  return json;
}

Json TraceJson(uint32_t choice, const TokenTrace& trace, std::string_view piece) {
  Json json;
  json["choice"] = choice;
  json["position"] = trace.position;
  json["id"] = trace.token;
  json["piece"] = piece;
  json["p"] = FiniteOrNull(trace.target_prob);
  json["q"] = FiniteOrNull(trace.draft_prob);
  json["u"] = FiniteOrNull(trace.uniform);
  json["decision"] = DecisionName(trace.decision);
  json["node"] = trace.node;
  return json;
}

std::string JsonText(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace paceline
