#!/usr/bin/env bash
# Prints the notes of a release: its section of CHANGELOG.md, or the unreleased section without one.
#
#   tools/release-notes.sh VERSION
set -euo pipefail
changelog=$(dirname "$0")/../CHANGELOG.md
if [[ $# -ne 1 ]]; then
    sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3- >&2
    exit 2
fi
# Prints the section whose heading has this prefix.
below() { awk -v heading="## $1" '/^## /{ inside = index($0, heading) == 1 && (length($0) == length(heading) || substr($0, length(heading) + 1, 1) == " "); next } inside' "$changelog"; }
notes=$(below "$1")
if [[ -z ${notes//[[:space:]]/} ]]; then
    notes=$(below Unreleased)
fi
if [[ -z ${notes//[[:space:]]/} ]]; then
    echo "release-notes: CHANGELOG.md says nothing about $1" >&2
    exit 1
fi
printf '# Lockgate %s\n\n%s\n' "$1" "$notes"
