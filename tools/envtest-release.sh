#!/usr/bin/env bash
# Builds the archive that setup-envtest installs, and the index that it reads.
#
#   tools/envtest-release.sh DIR BASE_URL    the archive will be published at BASE_URL
#
# LOCKGATE is the path of the program; by default, the workspace is built in release mode. An existing index keeps its
# other archives, so that several platforms can be added in sequence.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [[ $# -ne 2 ]]; then
    sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3- >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
base=${2%/}

if [[ -z ${LOCKGATE:-} ]]; then
    (cd "$root" && cargo build --release --locked -p lockgate-cli --bin lockgate)
    LOCKGATE=${CARGO_TARGET_DIR:-$root/target}/release/lockgate
fi
kubectl=$("$root/tools/need.sh" kubectl)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
PATH="$kubectl:$PATH" "$LOCKGATE" envtest install "$stage/envtest" >/dev/null
version=$("$stage/envtest/kube-apiserver" --version)
version=${version#Kubernetes }
system=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in
    x86_64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) machine=$(uname -m) ;;
esac
archive=envtest-$version-$system-$machine.tar.gz
# Plain files in one directory, reproducible.
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=0755 \
    -c envtest/etcd envtest/kube-apiserver envtest/kubectl | gzip -n >"$out/$archive"
hash=$(sha512sum "$out/$archive" | cut -d' ' -f1)

index=$out/envtest-releases.yaml
python3 - "$index" "$version" "$archive" "$hash" "$base/$archive" <<'PYTHON'
import re, sys
index, version, archive, digest, link = sys.argv[1:]
# A custom format: version, archive, hash and link, each on a line.
found = {}
try:
    text = open(index).read()
except FileNotFoundError:
    text = ""
for line in text.splitlines():
    if match := re.match(r"  (\S+):$", line):
        release = found.setdefault(match[1], {})
    elif match := re.match(r"    (\S+):$", line):
        entry = release.setdefault(match[1], {})
    elif match := re.match(r"      (\S+): (\S+)$", line):
        entry[match[1]] = match[2]
found.setdefault(version, {})[archive] = {"hash": digest, "selfLink": link}
with open(index, "w") as file:
    file.write("releases:\n")
    for version in sorted(found):
        file.write(f"  {version}:\n")
        for archive in sorted(found[version]):
            file.write(f"    {archive}:\n")
            for key in ("hash", "selfLink"):
                file.write(f"      {key}: {found[version][archive][key]}\n")
PYTHON
printf '%s\n%s\n' "$out/$archive" "$index"
