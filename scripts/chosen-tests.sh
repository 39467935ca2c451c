#!/usr/bin/env bash
# Runs the tests that names choose. A name that chooses none is an error: to libtest it is a run of no tests, which passes.
#
#   scripts/chosen-tests.sh cargo test -p uruk-core --lib -- protocol::tests::model
#
# Behind -- stand names, and options without a value. Without a name there must be some test that the options leave.
set -euo pipefail

tests=()
while [[ $# -gt 0 && $1 != -- ]]; do
  tests+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift
names=() options=()
for argument in "$@"; do
  case "$argument" in
    -*) options+=("$argument") ;;
    *) names+=("$argument") ;;
  esac
done
[[ ${#names[@]} -gt 0 ]] || names=("")
for name in "${names[@]}"; do
  listed=$("${tests[@]}" -- --list "${options[@]}" "$name")
  if ! grep -q ': test$' <<<"$listed"; then
    echo "chosen-tests.sh: \`$name\` chooses no test of: ${tests[*]} ${options[*]}" >&2
    echo "chosen-tests.sh: it was renamed or moved; correct the name where this is called" >&2
    exit 1
  fi
done
exec "${tests[@]}" -- "$@"
