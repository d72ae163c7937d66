#include "runtime/matrix.h"

#include "runtime/cli/commands.h"
#include "runtime/cli/output.h"

namespace paceline::cli {

int RunMatrix(bool markdown) {
  Output out;
  out.Write(markdown ? MatrixMarkdown() : MatrixText());
  return ReportStatus(out.status());
}

}  // namespace paceline::cli
