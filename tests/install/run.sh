#!/usr/bin/env bash
# Tries every way to install.
#
#   tests/install/run.sh [DIST]    DIST is a folder made by tools/dist.sh; it is made of LOCKGATE otherwise
#
# A way whose tools are missing is skipped and named; exit code 0 means that the others work.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dist=${1:-}
if [[ -z $dist ]]; then
    made=$(mktemp -d)
    trap 'rm -rf "$made"' EXIT
    # Without its debug information, which would be most of it.
    strip -o "$made/lockgate" "${LOCKGATE:?names the program, or pass DIST}" 2>/dev/null || cp "$LOCKGATE" "$made/lockgate"
    dist=$made/dist
    LOCKGATE=$made/lockgate "$root/tools/dist.sh" "$dist" "file://$dist" >"$made/log" 2>&1 || {
        cat "$made/log" >&2
        exit 1
    }
fi
if kubectl=$("$root/tools/need.sh" kubectl); then export PATH="$kubectl:$PATH"; fi
if clients=$("$root/tools/need.sh" clients 2>/dev/null); then
    PYTEST_SITE=$("$clients/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    export PYTEST_SITE
fi
skipped=()
for way in archive pip npm go image action manifests platforms; do
    code=0
    "$here/$way.sh" "$dist" || code=$?
    case $code in
        0) ;;
        3) skipped+=("$way") ;;
        *) exit 1 ;;
    esac
done
if [[ ${#skipped[@]} -gt 0 ]]; then echo "skipped: ${skipped[*]}"; fi
