// Generates with drafting and prints what drafting did: quickstart MODEL.gguf "text to continue"
#include <cstdio>

#include "models/load_model.h"
#include "runtime/engine.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: quickstart MODEL.gguf TEXT\n", stderr), 2;
  auto weights = paceline::OpenModel(argv[1]);
  if (!weights.ok()) return std::fputs(weights.status().ToString().c_str(), stderr), 2;
  auto tokenizer = paceline::Tokenizer::Create((*weights)->tokenizer());
  auto model = paceline::LoadModel(**weights, {});
  if (!tokenizer.ok() || !model.ok()) return std::fputs("cannot load the model\n", stderr), 2;

  paceline::GenerationRequest request;
  request.prompt = (*tokenizer)->Encode(argv[2], paceline::Tokenizer::Specials::kParse).value();
  request.max_tokens = 64;

  paceline::Engine engine({model->get(), nullptr, VocabularyOf(**tokenizer)}, {});
  const auto result = engine.Generate(request);
  if (!result.ok()) return std::fputs(result.status().ToString().c_str(), stderr), 1;
  const paceline::Choice& choice = result->choices[0];
  std::printf("%s\n%ld drafted, %ld accepted\n", choice.text.c_str(),
              static_cast<long>(choice.telemetry.num_draft_tokens),
              static_cast<long>(choice.telemetry.num_accepted_tokens));
}
