#!/usr/bin/env bash
# The container image: every blob is what its digest says, and the program runs with nothing else around it.
source "$(dirname "$0")/lib.sh"
need python3

start_clock
for image in "$dist"/*-linux-*.oci.tar; do
    mkdir -p "$work/layout" "$work/root"
    tar -xf "$image" -C "$work/layout"
    python3 - "$work/layout" "$work/layer.tar.gz" "$work/config.json" <<'PYTHON'
import gzip, hashlib, json, pathlib, shutil, sys
layout, layer, config = map(pathlib.Path, sys.argv[1:])

def blob(descriptor):
    path = layout / "blobs" / descriptor["digest"].replace(":", "/")
    data = path.read_bytes()
    assert len(data) == descriptor["size"], path
    assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], path
    return path, data

assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
(described,) = json.loads((layout / "index.json").read_text())["manifests"]
manifest = json.loads(blob(described)[1])
settings = json.loads(blob(manifest["config"])[1])
(packed,) = manifest["layers"]
path, data = blob(packed)
assert settings["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(gzip.decompress(data)).hexdigest()]
assert settings["config"]["User"] == "65532:65532", settings
assert described["platform"] == {"os": settings["os"], "architecture": settings["architecture"]}
shutil.copy(path, layer)
config.write_text(json.dumps(settings))
PYTHON
    tar -xzf "$work/layer.tar.gz" -C "$work/root" --no-same-owner
    entry=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["config"]["Entrypoint"][0])' "$work/config.json")
    [[ -x $work/root$entry ]] || fail "$image has no $entry"
    # Only a static program of this machine's architecture runs there.
    if [[ $image == *-linux-"$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')".oci.tar ]] &&
        ! LC_ALL=C readelf -l "$work/root$entry" 2>/dev/null | grep -q INTERP; then
        if unshare --user --map-root-user true 2>/dev/null || [[ $(id -u) -eq 0 ]]; then
            prefix=()
            [[ $(id -u) -eq 0 ]] || prefix=(unshare --user --map-root-user)
            said=$("${prefix[@]}" chroot "$work/root" "$entry" --help) || fail "$image does not run: $said"
            echo "ran $(basename "$image") in an empty root"
        fi
    fi
    rm -rf "$work/layout" "$work/root"
done
passed
