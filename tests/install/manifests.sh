#!/usr/bin/env bash
# The manifests of other installers: their checksums and paths are those of the archives.
source "$(dirname "$0")/lib.sh"
need python3

start_clock
for archive in "$dist"/lockgate-"$version"-*.tar.gz; do
    file=$(basename "$archive")
    sum=$(sha256sum "$archive" | cut -d' ' -f1)
    inside=$(basename "$archive" .tar.gz)
    listed=$(tar -tzf "$archive")
    for manifest in krew.yaml lockgate.rb; do
        grep -A1 "$file\"\?$" "$dist/$manifest" | grep -q "$sum" || fail "$manifest has another checksum for $file"
    done
    # What krew copies is in the archive.
    sed -n "s|^    - from: \($inside/.*\)|\1|p" "$dist/krew.yaml" | while read -r path; do
        grep -qx "$path" <<<"$listed" || fail "krew.yaml copies $path, which is not in $file"
    done
    # What cargo binstall looks for.
    platform=${inside#lockgate-"$version"-}
    grep -q "/lockgate-{ version }-$platform.tar.gz\"" "$root/crates/cli/Cargo.toml" || fail "binstall does not know $platform"
    grep -qx "$inside/lockgate" <<<"$listed" || fail "binstall finds no program in $file"
done
if command -v ruby >/dev/null; then ruby -c "$dist/lockgate.rb" >/dev/null || fail "the formula is no Ruby"; fi
grep -q "^# Lockgate $version" "$dist/NOTES.md" || fail "the notes have no heading"
[[ $(wc -l <"$dist/NOTES.md") -gt 5 ]] || fail "the notes are empty"
sh -n "$dist/install.sh"
if grep -q '@VERSION@\|@BASE_URL@' "$dist/install.sh"; then fail "install.sh is not filled in"; fi
passed
