#!/usr/bin/env bash
# Checks that every include points to the same folder or a lower one (docs/architecture.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A ALLOWED=(
  [base]='base'
  [sampling]='base sampling'
  [verify]='base sampling verify'
  [batch]='base sampling verify batch'
  [models]='base models'
  [target]='base models target'
  [draft]='base sampling models draft'
  [runtime]='base sampling verify models target draft runtime'
)

status=0
for folder in "${!ALLOWED[@]}"; do
  while IFS=: read -r file line include; do
    used=${include#*\"}
    used=${used%%/*}
    case " ${ALLOWED[$folder]} " in
      *" $used "*) ;;
      *)
        printf '%s:%s: %s may not include from %s\n' "$file" "$line" "$folder" "$used" >&2
        status=1
        ;;
    esac
  done < <(grep -rnE '^#include "(base|sampling|verify|batch|models|target|draft|runtime|tests|bench|examples)/' "$folder" \
    --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' || true)
done

# Only the reference engine and the tensor API may see libtorch.
torch=$(grep -rlE '#include <(ATen|c10|torch)/' base sampling verify batch models target draft runtime |
  grep -vE '^(models/(reference_|torch_)|batch/(tensor_api|torch_ops))' || true)
if [ -n "$torch" ]; then
  printf 'libtorch is included by: %s\n' "${torch//$'\n'/ }" >&2
  status=1
fi
exit $status
