#!/usr/bin/env python3
"""Writes wheels with nothing but Python: one that carries the program, one of Python alone.

wheel.py program OUT VERSION PLATFORM PROGRAM README    the wheel `lockgate` for a platform such as linux-amd64
wheel.py plain OUT FOLDER                               the wheel of a folder with a pyproject.toml and src/
"""

import base64
import hashlib
import pathlib
import struct
import sys
import tomllib
import zipfile


def is_static(program: bytes) -> bool:
    """An ELF program that names no interpreter needs no C library of the system."""
    if program[:4] != b"\x7fELF":
        return False
    offset, = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    return all(struct.unpack_from("<I", program, offset + each * size)[0] != 3 for each in range(count))


def tags(platform: str, program: bytes) -> list[str]:
    """The platforms of a wheel, as pip names them."""
    system, machine = platform.split("-")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if system == "darwin":
        return [f"macosx_11_0_{machine.replace('aarch64', 'arm64')}"]
    if is_static(program):
        return [f"manylinux2014_{machine}", f"musllinux_1_1_{machine}"]
    return [f"{system}_{machine}"]


class Wheel:
    """A wheel that is being written: the same bytes for the same files."""

    def __init__(self, out: pathlib.Path, name: str, version: str, platforms: list[str]):
        self.stem = f"{name.replace('-', '_')}-{version}"
        self.path = out / f"{self.stem}-py3-none-{'.'.join(platforms)}.whl"
        self.platforms = platforms
        self.zip = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, path: str, data: bytes, mode: int = 0o644) -> None:
        info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{path},sha256={digest},{len(data)}")

    def finish(self, metadata: list[str], readme: str, entry_points: str = "") -> None:
        folder = f"{self.stem}.dist-info"
        text = "\n".join(["Metadata-Version: 2.1", *metadata, "Description-Content-Type: text/markdown", "", readme])
        self.add(f"{folder}/METADATA", text.encode())
        pure = "true" if self.platforms == ["any"] else "false"
        lines = ["Wheel-Version: 1.0", "Generator: lockgate", f"Root-Is-Purelib: {pure}"]
        lines += [f"Tag: py3-none-{platform}" for platform in self.platforms]
        self.add(f"{folder}/WHEEL", ("\n".join(lines) + "\n").encode())
        if entry_points:
            self.add(f"{folder}/entry_points.txt", entry_points.encode())
        self.record.append(f"{folder}/RECORD,,")
        self.zip.writestr(zipfile.ZipInfo(f"{folder}/RECORD", (1980, 1, 1, 0, 0, 0)), "\n".join(self.record) + "\n")
        self.zip.close()
        print(self.path)


def program(out: str, version: str, platform: str, path: str, readme: str) -> None:
    data = pathlib.Path(path).read_bytes()
    wheel = Wheel(pathlib.Path(out), "lockgate", version, tags(platform, data))
    wheel.add(f"{wheel.stem}.data/scripts/lockgate", data, 0o755)
    summary = "Kubernetes dynamic admission control: an API server for tests, a linter and CEL tools"
    metadata = ["Name: lockgate", f"Version: {version}", f"Summary: {summary}", "License: Apache-2.0", "Requires-Python: >=3.9"]
    wheel.finish(metadata, pathlib.Path(readme).read_text())


def plain(out: str, folder: str) -> None:
    root = pathlib.Path(folder)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wheel = Wheel(pathlib.Path(out), project["name"], project["version"], ["any"])
    source = root / "src"
    for path in sorted(source.rglob("*.py")):
        wheel.add(str(path.relative_to(source)), path.read_bytes())
    metadata = [
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {each}" for each in project.get("dependencies", [])),
    ]
    entry_points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project.get("entry-points", {}).items()
    )
    wheel.finish(metadata, (root / project["readme"]).read_text(), entry_points)


if __name__ == "__main__":
    commands = {"program": program, "plain": plain}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
