#!/usr/bin/env python3
"""Summarizes `go test -json` on standard input: the output of failed tests, then each package and the number of leaf
tests (tests without subtests) that passed, failed and were skipped. Exit code 1: something failed."""

import collections
import json
import sys

output = collections.defaultdict(list)
results = {}
packages = {}
for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        # Errors of the build.
        print(line, end="")
        continue
    if event["Action"] == "build-output":
        print(event["Output"], end="")
    if "Package" not in event:
        continue
    test = (event["Package"], event.get("Test", ""))
    if event["Action"] == "output":
        output[test].append(event["Output"])
    elif event["Action"] in ("pass", "fail", "skip"):
        (results if test[1] else packages)[test] = event["Action"]
        if event["Action"] == "fail":
            print("".join(output[test]), end="")
        output.pop(test, None)

# A test that never ended, because its process died, has failed.
for test in output:
    if test[1]:
        results.setdefault(test, "fail")
parents = {(package, name.rsplit("/", 1)[0]) for package, name in results if "/" in name}
leaves = {test: result for test, result in results.items() if test not in parents}
for (package, _), result in packages.items():
    own = collections.Counter(each for test, each in leaves.items() if test[0] == package)
    if own or result == "fail":
        print(f"{result}  {package}: {own['pass']} passed, {own['fail']} failed, {own['skip']} skipped")
for (package, name), result in sorted(leaves.items()):
    if result == "fail":
        print(f"failed: {package} {name}")
total = collections.Counter(leaves.values())
print(f"total: {total['pass']} passed, {total['fail']} failed, {total['skip']} skipped")
sys.exit("fail" in packages.values() or total["fail"] > 0)
