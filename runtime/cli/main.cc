// paceline: the command line. Exit codes: 0 done, 1 the run failed, 2 bad input, 130 after Ctrl-C.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/output.h"

namespace paceline::cli {
namespace {

constexpr char kDescription[] =
    "Generates text with a language model, faster by drafting, with the same distribution.";
constexpr size_t kHelpColumn = 34;  // Where descriptions begin.
constexpr size_t kHelpWidth = 100;
constexpr char kVersion[] = "paceline " PACELINE_VERSION "\n";

// Everything the command line can ask for.
struct Commands {
  GenerateOptions generate;
  BenchOptions bench;
  CompareOptions compare;
  InspectOptions inspect;
  TokenizeOptions tokenize;
  SliceOptions slice;
  bool markdown = false;
  bool models_json = false;
  bool version = false;
  std::function<int()> run;  // The chosen subcommand.
};

void AddInspect(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("inspect", "Print what is in a model file, or in the machine.");
  sub->add_option("FILE", commands.inspect.file, "a model: GGUF file, Hugging Face folder, or name")->type_name("");
  sub->add_flag("--machine", commands.inspect.machine,
                "instruction sets of the fast engine here, the one chosen first, and speed limits");
  sub->add_flag("--json", commands.inspect.json, "print one JSON object");
  sub->callback([&] { commands.run = [&] { return RunInspect(commands.inspect); }; });
}

void AddMatrix(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("matrix", "Print which settings are exact under which rule, or refused.");
  sub->add_flag("--markdown", commands.markdown, "as a page of the documentation");
  sub->callback([&] { commands.run = [&] { return RunMatrix(commands.markdown); }; });
}

void AddModels(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand(
      "models", "List models that can be installed by name, and those that are.");
  sub->add_flag("--json", commands.models_json, "print a JSON array");
  sub->callback([&] { commands.run = [&] { return RunModels(commands.models_json); }; });
}

void AddTokenize(CLI::App& app, Commands& commands) {
  TokenizeOptions& options = commands.tokenize;
  CLI::App* sub = app.add_subcommand("tokenize", "Print a text's token ids and pieces.");
  sub->add_option("TEXT", options.text, "the text; - reads it from standard input")
      ->required()
      ->type_name("");
  AddModelOption(*sub, options.model);
  sub->add_flag("--ids", options.ids_only, "ids alone, as --prompt-ids takes them");
  sub->add_flag("--no-specials", options.no_specials, "control tokens are text like any other");
  sub->add_flag("--json", options.json, "print one JSON object");
  sub->callback([&] { commands.run = [&] { return RunTokenize(commands.tokenize); }; });
}

void AddSlice(CLI::App& app, Commands& commands) {
  SliceOptions& options = commands.slice;
  CLI::App* sub =
      app.add_subcommand("slice", "Write a model's first layers as a model, to draft with.");
  sub->add_option("IN", options.in, "GGUF file to read")->required()->type_name("");
  sub->add_option("OUT", options.out, "GGUF file to write")->required()->type_name("");
  AddWholeNumber(*sub, "--layers", options.layers, "layers to keep")->required();
  sub->callback([&] { commands.run = [&] { return RunSlice(commands.slice); }; });
}

void AddCommands(CLI::App& app, Commands& commands) {
  app.set_help_flag("--help,-h", "print this help and exit");
  app.add_flag("--version", commands.version, "print the version and exit");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(kHelpColumn);
  CLI::App* generate =
      app.add_subcommand("generate", "Answer a prompt, or every prompt of a file.");
  AddGenerateOptions(*generate, commands.generate);
  generate->callback([&] { commands.run = [&] { return RunGenerate(commands.generate); }; });
  CLI::App* bench = app.add_subcommand("bench", "Compare decoding without and with drafts.");
  AddBenchOptions(*bench, commands.bench);
  bench->callback([&] { commands.run = [&] { return RunBench(commands.bench); }; });
  CLI::App* compare = app.add_subcommand(
      "compare", "Compare the fast engine's rows with the reference engine's, on a prompt file.");
  AddCompareOptions(*compare, commands.compare);
  compare->callback([&] { commands.run = [&] { return RunCompare(commands.compare); }; });
  AddMatrix(app, commands);
  AddInspect(app, commands);
  AddModels(app, commands);
  AddTokenize(app, commands);
  AddSlice(app, commands);
  app.footer("paceline COMMAND --help explains a command's options.");
}

// CLI11 takes `--prompt=` for an option whose value comes next: an empty value becomes an argument
// of its own. The arguments come back in the reverse order that CLI11 parses.
std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const bool long_option = argument.starts_with("--") && equals > 2;
    if (long_option && equals + 1 == argument.size() &&
        argument.find_first_of(" \t\n") == std::string::npos) {
      arguments.push_back(argument.substr(0, equals));
      arguments.push_back("");
    } else {
      arguments.push_back(argument);
    }
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

// CLI11's help with single blank lines, and long lines broken under their own column.
std::string Tidy(const std::string& help) {
  std::string text;
  bool blank = false;
  for (std::string line : std::vector<std::string>(absl::StrSplit(help, '\n'))) {
    if (line.empty() && blank) continue;
    blank = line.empty();
    const size_t indent = line.starts_with("  ") ? kHelpColumn : 0;
    while (line.size() > kHelpWidth) {
      const size_t space = line.rfind(' ', kHelpWidth);
      if (space == std::string::npos || space <= indent) break;
      text += line.substr(0, space) + "\n";
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    text += line + "\n";
  }
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

// One line for people: CLI11 says what is wrong, and here where to read on.
absl::Status Refusal(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "paceline";
  std::string message = error.what();
  std::vector<std::string> unexpected = app.remaining();
  for (const CLI::App* sub : app.get_subcommands()) {
    command += " " + sub->get_name();
    if (unexpected.empty()) unexpected = sub->remaining();
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !unexpected.empty()) {
    message = "unexpected argument: " + unexpected.front();
  }
  return absl::InvalidArgumentError(absl::StrCat(message, "; see ", command, " --help"));
}

int Print(const std::string& text) {
  Output out;
  out.Write(text);
  return ReportStatus(out.status());
}

int Run(int argc, char** argv) {
  CLI::App app(kDescription, "paceline");
  Commands commands;
  AddCommands(app, commands);
  try {
    app.parse(Arguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    return Print(Tidy(app.help()));
  } catch (const CLI::ParseError& error) {
    return ReportStatus(Refusal(app, error));
  }
  if (commands.version) return Print(kVersion);
  return commands.run ? commands.run() : Print(Tidy(app.help()));
}

}  // namespace
}  // namespace paceline::cli

int main(int argc, char** argv) {
  using paceline::cli::ReportStatus;
  paceline::cli::PrepareStreams();
  try {
    return paceline::cli::Run(argc, argv);
  } catch (const std::bad_alloc&) {
    return ReportStatus(absl::ResourceExhaustedError("out of memory"));
  } catch (const std::exception& error) {
    return ReportStatus(absl::InternalError(error.what()));
  }
}
