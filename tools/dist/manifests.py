#!/usr/bin/env python3
"""Writes the Homebrew formula and the krew manifest for the archives that are in a folder.

manifests.py OUT VERSION BASE_URL
"""

import hashlib
import pathlib
import re
import sys

SUMMARY = "Kubernetes dynamic admission control: API server for tests, linter, CEL tools"


def archives(out: pathlib.Path, version: str) -> list[tuple[str, str, str, str]]:
    """System, machine, file name and checksum of each archive."""
    found = []
    for path in sorted(out.glob(f"lockgate-{version}-*.tar.gz")):
        if match := re.fullmatch(rf"lockgate-{re.escape(version)}-(\w+)-(\w+)\.tar\.gz", path.name):
            found.append((match[1], match[2], path.name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return found


def formula(version: str, base: str, found: list[tuple[str, str, str, str]]) -> str:
    lines = [
        "class Lockgate < Formula",
        f'  desc "{SUMMARY}"',
        f'  homepage "{base}"',
        f'  version "{version}"',
        '  license "Apache-2.0"',
        "",
    ]
    for system, block in (("darwin", "on_macos"), ("linux", "on_linux")):
        fitting = [each for each in found if each[0] == system]
        if not fitting:
            continue
        lines.append(f"  {block} do")
        for _, machine, name, checksum in fitting:
            lines += [
                f"    on_{'arm' if machine == 'arm64' else 'intel'} do",
                f'      url "{base}/{name}"',
                f'      sha256 "{checksum}"',
                "    end",
            ]
        lines += ["  end", ""]
    lines += [
        "  def install",
        '    bin.install "lockgate"',
        '    man1.install Dir["man/man1/*.1"]',
        '    bash_completion.install "completions/lockgate.bash" => "lockgate"',
        '    zsh_completion.install "completions/lockgate.zsh" => "_lockgate"',
        '    fish_completion.install "completions/lockgate.fish"',
        "  end",
        "",
        "  test do",
        '    assert_match version.to_s, shell_output("#{bin}/lockgate version")',
        "  end",
        "end",
        "",
    ]
    return "\n".join(lines)


def krew(version: str, base: str, found: list[tuple[str, str, str, str]]) -> str:
    lines = [
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2",
        "kind: Plugin",
        "metadata:",
        "  name: lockgate",
        "spec:",
        f"  version: v{version}",
        f"  homepage: {base}",
        "  shortDescription: Check admission webhooks and policies offline",
        "  description: |",
        "    Validates webhook configurations and admission policies as an API server would and finds risks in them,",
        "    evaluates CEL expressions, and runs a Kubernetes API server with full admission control on this machine.",
        "  platforms:",
    ]
    for system, machine, name, checksum in found:
        lines += [
            "  - selector:",
            "      matchLabels:",
            f"        os: {system}",
            f"        arch: {machine}",
            f"    uri: {base}/{name}",
            f"    sha256: {checksum}",
            "    files:",
            f"    - from: lockgate-{version}-{system}-{machine}/lockgate",
            "      to: .",
            f"    - from: lockgate-{version}-{system}-{machine}/LICENSE",
            "      to: .",
            "    bin: lockgate",
        ]
    return "\n".join(lines) + "\n"


def main(out: str, version: str, base: str) -> None:
    folder = pathlib.Path(out)
    found = archives(folder, version)
    if not found:
        sys.exit(f"manifests: no archive of {version} in {out}")
    (folder / "lockgate.rb").write_text(formula(version, base, found))
    (folder / "krew.yaml").write_text(krew(version, base, found))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
