#!/usr/bin/env bash
# The artifacts of every platform: all of them contain the same program, built for the platform that they state.
# Programs of other platforms run with qemu-user.
source "$(dirname "$0")/lib.sh"
need python3

start_clock
python3 - "$root" "$dist" "$version" "$work" >"$work/platforms" <<'PYTHON' || fail "see above"
import json, pathlib, struct, sys, tarfile, zipfile
root, dist, work = (pathlib.Path(each) for each in (sys.argv[1], sys.argv[2], sys.argv[4]))
version = sys.argv[3]
sys.path.insert(0, str(root / "tools/dist"))
import wheel

ELF = {"amd64": 62, "arm64": 183}
MACH = {"amd64": 0x01000007, "arm64": 0x0100000C}


def check(platform, program, source):
    """The header of the program is that of the platform."""
    system, machine = platform.split("-")
    if system == "linux":
        assert program[:6] == b"\x7fELF\x02\x01", f"{source}: not a 64-bit ELF file"
        found, expected = struct.unpack_from("<H", program, 18)[0], ELF[machine]
    else:
        found, expected = struct.unpack_from("<I", program, 4)[0], MACH[machine]
    assert found == expected, f"{source}: built for machine {found} instead of {expected}"


def member(path, name):
    with tarfile.open(path) as tar:
        return tar.extractfile(name).read()


def image(path, platform, name):
    """The program of an OCI layout."""
    system, machine = platform.split("-")
    stated = {"os": system, "architecture": machine}
    (manifest,) = json.loads(member(path, "index.json"))["manifests"]
    assert manifest["platform"] == stated, f"{path.name}: index"
    blob = lambda descriptor: member(path, "blobs/" + descriptor["digest"].replace(":", "/"))
    manifest = json.loads(blob(manifest))
    config = json.loads(blob(manifest["config"]))
    assert {key: config[key] for key in stated} == stated, f"{path.name}: config"
    layer = work / "layer"
    layer.write_bytes(blob(manifest["layers"][0]))
    return member(layer, name)


for archive in sorted(dist.glob(f"lockgate-{version}-*-*.tar.gz")):
    stem = archive.name.removesuffix(".tar.gz")
    platform = stem.removeprefix(f"lockgate-{version}-")
    system, machine = platform.split("-")
    program = member(archive, f"{stem}/lockgate")
    check(platform, program, archive.name)

    wheels = list(dist.glob(f"lockgate-{version}-py3-none-*{'.'.join(wheel.tags(platform, program))}.whl"))
    assert len(wheels) == 1, f"wheels of {platform}: {wheels}"
    with zipfile.ZipFile(wheels[0]) as file:
        assert file.read(f"lockgate-{version}.data/scripts/lockgate") == program, f"{wheels[0].name}: another program"

    npm = dist / f"lockgate-{system}-{machine.replace('amd64', 'x64')}-{version}.tgz"
    described = json.loads(member(npm, "package/package.json"))
    assert (described["os"], described["cpu"]) == ([system], [machine.replace("amd64", "x64")]), npm.name
    assert member(npm, "package/lockgate") == program, f"{npm.name}: another program"
    optional = json.loads(member(dist / f"lockgate-{version}.tgz", "package/package.json"))["optionalDependencies"]
    assert optional.get(described["name"]) == version, f"the package lockgate does not depend on {described['name']}"

    if system == "linux":
        layout = dist / f"lockgate-{version}-{platform}.oci.tar"
        assert image(layout, platform, "lockgate") == program, f"{layout.name}: another program"
        layout = dist / f"shaper-webhooks-{version}-{platform}.oci.tar"
        if layout.exists():
            check(platform, image(layout, platform, "shaper-webhooks"), layout.name)

    target = work / platform
    target.mkdir()
    (target / "lockgate").write_bytes(program)
    (target / "lockgate").chmod(0o755)
    print(platform, "static" if wheel.is_static(program) else "dynamic")
PYTHON
passed

untested=()
while read -r platform linked; do
    if [[ $platform == "$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')" ]]; then
        continue
    fi
    case $platform in
        linux-amd64) machine=x86_64 ;;
        linux-arm64) machine=aarch64 ;;
        *) machine=none ;;
    esac
    emulator=$(command -v "qemu-$machine" || command -v "qemu-$machine-static" || true)
    if [[ $(uname -s) != Linux || -z $emulator ]]; then
        untested+=("$platform")
        continue
    fi
    # An emulator finds the libraries of static programs only.
    [[ $linked == static ]] || fail "the program of $platform is not static"
    program=("$emulator" "$work/$platform/lockgate")
    [[ $("${program[@]}" version) == "lockgate $version" ]] || fail "$platform: version"
    "${program[@]}" lint "$here/policy.yaml" >"$work/said" 2>&1 || fail "$platform: lint: $(cat "$work/said")"
    printf 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: bad\n  namespace: default\n' >"$work/bad.yaml"
    "${program[@]}" explain -f "$here/policy.yaml" --object "$work/bad.yaml" >"$work/said" 2>&1 || true
    grep -q "every ConfigMap has an owner" "$work/said" || fail "$platform: explain: $(cat "$work/said")"
    if command -v kubectl >/dev/null; then
        "${program[@]}" serve --secure-port 0 --kubeconfig-out "$work/$platform.kubeconfig" -f "$here/policy.yaml" \
            >"$work/ready" 2>"$work/log" &
        server=$!
        for _ in $(seq 6000); do
            if [[ -s $work/ready ]]; then break; fi
            kill -0 "$server" 2>/dev/null || fail "$platform: $(cat "$work/log")"
            sleep 0.01
        done
        export KUBECONFIG=$work/$platform.kubeconfig
        denies
        [[ $(kubectl version -o json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["serverVersion"]["platform"])') == "${platform/-//}" ]] ||
            fail "$platform: /version has another platform"
        kill "$server"
        wait "$server" || true
        server=
    fi
    echo "ran $platform with $(basename "$emulator")"
done <"$work/platforms"
if [[ ${#untested[@]} -gt 0 ]]; then
    echo "skipped $name: NOT RUN, since qemu-user cannot run them here or is not installed: ${untested[*]}" >&2
    exit 3
fi
