#!/usr/bin/env bash
# The install script, the archive that it fetches, and the plugin of kubectl.
source "$(dirname "$0")/lib.sh"
need curl kubectl

start_clock
# kubectl finds plugins on PATH, which a person sets once.
export PATH="$work/bin:$PATH"
"$dist/install.sh" --from "file://$dist" --to "$work/bin" --kubectl-plugin 2>"$work/said" || fail "$(cat "$work/said")"
lockgate serve --secure-port 0 --kubeconfig-out "$work/kubeconfig" -f "$here/policy.yaml" >"$work/ready" 2>"$work/log" &
server=$!
for _ in $(seq 1000); do
    if [[ -s $work/ready ]]; then break; fi
    kill -0 "$server" 2>/dev/null || fail "$(cat "$work/log")"
    sleep 0.01
done
export KUBECONFIG=$work/kubeconfig
denies
passed

[[ $(kubectl lockgate version) == "lockgate $version" ]] || fail "kubectl lockgate does not work"
# Clients know platforms by Go's names.
kubectl version -o json 2>/dev/null | grep -q '"platform": "'"$(uname -s | tr '[:upper:]' '[:lower:]')"'/a[mr]' || fail "unexpected platform"

# An archive that was tampered with is not installed.
mkdir "$work/bad"
cp "$dist/SHA256SUMS" "$dist"/lockgate-"$version"-*.tar.gz "$work/bad/"
for archive in "$work/bad"/*.tar.gz; do echo more >>"$archive"; done
if "$dist/install.sh" --from "file://$work/bad" --to "$work/other" 2>"$work/said"; then fail "a wrong checksum was accepted"; fi
grep -q "nothing was installed" "$work/said" || fail "$(cat "$work/said")"
[[ ! -e $work/other/lockgate ]] || fail "installed in spite of a wrong checksum"

# What else the archive has.
tar -xzf "$(ls "$dist"/lockgate-"$version"-*.tar.gz | head -1)" --strip-components=1 -C "$HOME"
for file in LICENSE NOTICE README.md completions/lockgate.bash completions/lockgate.zsh completions/lockgate.fish man/man1/lockgate-serve.1; do
    [[ -s $HOME/$file ]] || fail "the archive has no $file"
done
bash -n "$HOME/completions/lockgate.bash" || fail "the completions are no script"
(cd "$dist" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS is wrong"
