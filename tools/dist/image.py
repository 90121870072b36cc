#!/usr/bin/env python3
"""Writes a container image without a container tool: an OCI layout in a tar, and its one layer for a Containerfile.

image.py OUT VERSION PLATFORM PROGRAM [NAME PORTS...]

The image has the program as /NAME (lockgate), and /tmp and /data that its user may write to. The same bytes for the
same program.
"""

import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile

USER = 65532


def entry(name: str, mode: int, kind: bytes, owner: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid = kind, mode, owner, owner
    return info


def layer(name: str, program: bytes) -> bytes:
    """The files of the image, as an uncompressed tar."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(entry("data/", 0o755, tarfile.DIRTYPE, USER))
        info = entry(name, 0o755, tarfile.REGTYPE)
        info.size = len(program)
        tar.addfile(info, io.BytesIO(program))
        tar.addfile(entry("tmp/", 0o1777, tarfile.DIRTYPE))
    return target.getvalue()


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def main(out: str, version: str, platform: str, path: str, name: str = "lockgate", *ports: str) -> None:
    system, architecture = platform.split("-")
    plain = layer(name, pathlib.Path(path).read_bytes())
    packed = gzip.compress(plain, 6, mtime=0)
    stem = "image" if name == "lockgate" else f"image-{name}"
    (pathlib.Path(out) / f"{stem}-{platform}.tar.gz").write_bytes(packed)

    blobs = {digest(packed): packed}

    def blob(kind: str, value: object) -> dict:
        data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        blobs[digest(data)] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}.v1+json", "digest": digest(data), "size": len(data)}

    labels = {
        "org.opencontainers.image.title": name,
        "org.opencontainers.image.vendor": "The Lockgate authors",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = blob(
        "config",
        {
            "architecture": architecture,
            "os": system,
            "config": {
                "User": f"{USER}:{USER}",
                "WorkingDir": "/data",
                "Entrypoint": [f"/{name}"],
                # As in packages/image/Containerfile.
                "Env": ["MIMALLOC_PURGE_DELAY=10"],
                "ExposedPorts": {f"{port}/tcp": {} for port in ports or ("6443",)},
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
            "history": [{"created_by": "tools/dist.sh"}],
        },
    )
    manifest = blob(
        "manifest",
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [
                {
                    "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": digest(packed),
                    "size": len(packed),
                }
            ],
        },
    )
    manifest["platform"] = {"os": system, "architecture": architecture}
    manifest["annotations"] = {"org.opencontainers.image.ref.name": f"{name}:{version}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}

    target = pathlib.Path(out) / f"{name}-{version}-{platform}.oci.tar"
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
        files |= {f"blobs/{key.replace(':', '/')}": data for key, data in sorted(blobs.items())}
        for folder in ("blobs/", "blobs/sha256/"):
            tar.addfile(entry(folder, 0o755, tarfile.DIRTYPE))
        for file, data in files.items():
            info = entry(file, 0o644, tarfile.REGTYPE)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    print(target)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
