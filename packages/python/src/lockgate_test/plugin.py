"""Fixtures for pytest, which finds them by the name of this package's entry point."""

from __future__ import annotations

from typing import Iterator, List

import pytest

from . import Server, start


@pytest.fixture(scope="session")
def lockgate_arguments() -> List[str]:
    """Arguments of `lockgate envtest start`; override it in conftest.py."""
    return []


@pytest.fixture(scope="session")
def lockgate(lockgate_arguments: List[str]) -> Iterator[Server]:
    """A server for all tests of the session."""
    with start(lockgate_arguments) as server:
        yield server
