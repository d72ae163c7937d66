// Verifies drafts of a whole batch for a serving stack that holds tensors: two requests, up to two
// drafted tokens each. Prints the tokens that may be emitted, -1 behind the last.
#include <ATen/ATen.h>

#include <iostream>

#include "batch/tensor_api.h"

int main() {
  at::manual_seed(1);
  const at::Tensor target = at::randn({2, 3, 8});  // Logits [B, K + 1, V].
  const at::Tensor draft = target.slice(1, 0, 2) + at::randn({2, 2, 8});
  const paceline::KeyTensors keys{at::tensor({7, 8}), {}, at::tensor({12, 40})};

  std::vector<paceline::SamplingOptions> sampling(1);  // One for all; or one a request.
  sampling[0].temperature = 0.8;
  sampling[0].top_p = 0.95;
  paceline::Workspace workspace;
  at::Tensor probs, tokens[2];
  absl::Status status = paceline::WarpProbs(draft, sampling, workspace, probs);
  for (int64_t i = 0; i < 2 && status.ok(); ++i) {  // With the noise that is a drafter's own.
    const at::Tensor row = probs.select(1, i);
    status =
        Sample({row, false}, keys, at::scalar_tensor(i, at::kLong), sampling, workspace, tokens[i]);
  }
  paceline::DraftTensors drafted;
  drafted.tokens = at::stack({tokens[0], tokens[1]}, 1);
  drafted.probs = probs;
  paceline::VerifySettings settings;
  settings.rule = paceline::FindRule("block").value();
  settings.sampling = sampling;
  paceline::VerifyResult result;
  if (status.ok()) status = Verify(drafted, {target}, keys, settings, workspace, result);
  if (!status.ok()) return std::cerr << status << '\n', 1;
  std::cout << drafted.tokens << "\n" << result.tokens << "\n" << result.num_accepted << "\n";
}
