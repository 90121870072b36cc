"""A Kubernetes API server for tests: `lockgate envtest start` as a context manager.

>>> with start() as server:
...     print(server.url, server.kubeconfig)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from dataclasses import dataclass
from typing import Iterable, Optional

__all__ = ["LockgateError", "Server", "start"]


class LockgateError(RuntimeError):
    """The server did not start; the message has what it wrote to standard error."""


@dataclass(frozen=True)
class Server:
    """A server that runs. It is a context manager, which stops it."""

    url: str
    ca: str
    kubeconfig: str
    pid: int
    process: subprocess.Popen

    def stop(self, timeout: float = 10) -> None:
        """Stops the server; one that does not stop in time is killed."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _program() -> str:
    named = os.environ.get("LOCKGATE")
    # The package `lockgate` puts the program beside this interpreter, whose environment need not be on PATH.
    found = named or shutil.which("lockgate", path=sysconfig.get_path("scripts")) or shutil.which("lockgate")
    if not found:
        raise LockgateError("there is no lockgate on PATH; install it, or name it with LOCKGATE=FILE")
    return found


def start(arguments: Iterable[str] = (), *, timeout: float = 30, program: Optional[str] = None) -> Server:
    """Starts a server and waits until it is ready.

    `arguments` are those of `lockgate envtest start`, for example `["-f", "config/crd"]`. The program
    is the one that LOCKGATE names, that of the package `lockgate`, or the first on PATH.
    """
    command = [program or _program(), "envtest", "start", *arguments]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        # Reading has no timeout of its own: the line comes, or the process ends.
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            process.wait()
            process.stdout.close()
            log.seek(0)
            said = log.read().decode(errors="replace")
            raise LockgateError(f"{' '.join(command)} did not start:\n{said}")
    told = json.loads(line)
    return Server(told["url"], told["ca"], told["kubeconfig"], told["pid"], process)
