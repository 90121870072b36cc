"""Sends the same requests to two API servers and tells where the answers differ."""

import collections
import concurrent.futures
import json
import re

from servers import normal


class Comparison:
    """Counts requests and keeps the differences, at most a few of each kind."""

    def __init__(self, theirs, ours, report, keep=3):
        self.theirs, self.ours, self.report, self.keep = theirs, ours, open(report, "w"), keep
        self.count, self.codes = 0, collections.Counter()
        self.kinds = collections.Counter()

    def both(self, *request, **options):
        return self.theirs.request(*request, **options), self.ours.request(*request, **options)

    def compare(self, label, request, options=None, explain=None):
        """One request. `explain` says why a difference is none, if it is none."""
        theirs, ours = self.both(*request, **(options or {}))
        return label, request, theirs, ours

    def take(self, result, explain=None):
        label, request, theirs, ours = result
        self.count += 1
        self.codes[theirs[0]] += 1
        one, other = normal_answer(theirs), normal_answer(ours)
        if one == other and one[0] != 0:
            return True
        if one[0] == 0 and other[0] != 0:
            # UPSTREAM: a handler that panics closes the connection.
            self.kinds["explained: kube-apiserver panicked"] += 1
            return True
        if explain and explain(one, other):
            self.kinds["explained: " + explain(one, other)] += 1
            return True
        kind = f"{label} {signature(one, other)}"
        self.kinds[kind] += 1
        if self.kinds[kind] <= self.keep:
            told = {"kind": kind, "request": request, "kube-apiserver": one, "lockgate": other}
            self.report.write(json.dumps(told) + "\n")
            self.report.flush()
        return False

    def run(self, requests, workers=4, explain=None):
        """Requests are (label, (method, path, body), options)."""
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for result in pool.map(lambda request: self.compare(*request), requests):
                self.take(result, explain)

    def summary(self):
        differ = sum(count for kind, count in self.kinds.items() if not kind.startswith("explained"))
        lines = [f"{self.count} requests, {differ} differ; codes {dict(sorted(self.codes.items()))}"]
        lines += [f"{count:7} {kind}" for kind, count in self.kinds.most_common(40)]
        return "\n".join(lines)


def normal_answer(answer):
    status, body, warnings = answer
    return [status, normal(body), sorted(warnings)]


def signature(one, other):
    """What kind of difference it is: where the first one is."""
    if one[0] != other[0]:
        return f"code {one[0]} {other[0]}: {brief(one)} | {brief(other)}"
    if one[1] != other[1]:
        return "body at " + place(one[1], other[1])
    return "warnings"


def brief(answer):
    message = answer[1].get("message", "") if isinstance(answer[1], dict) else str(answer[1])
    return re.sub(r'"[^"]*"|\d+', "_", message)[:100]


def place(one, other, at=""):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other)):
            if one.get(key) != other.get(key):
                return place(one.get(key), other.get(key), f"{at}.{key}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for a, b in zip(one, other):
            if a != b:
                return place(a, b, at + "[]")
    if at.endswith("message"):
        return at + " " + re.sub(r'"[^"]*"|\d+', "_", str(one))[:80]
    return at
