"""Sends the same requests to two API servers and reports differences of the responses."""

import collections
import concurrent.futures
import json
import os
import re

from servers import normal


# How often a request to kube-apiserver is repeated before a difference is not attributed to Go map order. A map of two
# entries is iterated in the other order once in eight.
AGAIN = int(os.environ.get("AGAIN", "64"))


class Comparison:
    """Counts requests and records differences, at most `keep` of each kind."""

    def __init__(self, theirs, ours, report, keep=3):
        self.theirs, self.ours, self.report, self.keep = theirs, ours, open(report, "w"), keep
        self.count, self.codes = 0, collections.Counter()
        self.kinds = collections.Counter()

    def both(self, *request, **options):
        return self.theirs.request(*request, **options), self.ours.request(*request, **options)

    def compare(self, label, request, options=None):
        """Sends one request to both servers."""
        theirs, ours = self.both(*request, **(options or {}))
        return label, request, theirs, ours, lambda: self.theirs.request(*request, **(options or {}))

    def take(self, result, explain=None):
        """Counts one result: label, request, both responses, and a function that repeats the request to kube-apiserver. `explain` returns the reason of a known difference."""
        label, request, theirs, ours, again = result
        self.count += 1
        self.codes[theirs[0]] += 1
        one, other = normal_answer(theirs), normal_answer(ours)
        if one == other and one[0] != 0:
            return True
        if one[0] == 0 and other[0] != 0:
            # UPSTREAM: a handler that panics closes the connection.
            self.kinds["explained: kube-apiserver panicked"] += 1
            return True
        reason = chance(one, other, again) or (explain and explain(one, other, request))
        if reason:
            self.kinds["explained: " + reason] += 1
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
    return [status, normal(body), warnings]


def chance(one, other, again):
    """Repeats the request to kube-apiserver until the response equals Lockgate's, or differs from the first one in order only: Go map order is random."""
    for _ in range(AGAIN):
        more = normal_answer(again())
        if more == other:
            return "kube-apiserver answers so as well"
        if more != one and in_order(more) == in_order(one) == in_order(other):
            return "order of a Go map"
    return None


def in_order(value):
    """A response with sorted errors."""
    if isinstance(value, dict):
        value = ordered(value) if value.get("kind") == "Status" else value
        return {key: in_order(inner) for key, inner in value.items()}
    return [in_order(inner) for inner in value] if isinstance(value, list) else value


def ordered(status):
    status = dict(status)
    causes = (status.get("details") or {}).get("causes") or []
    status["message"] = pieces(status.get("message", ""))
    if len(causes) > 1:
        status["details"] = {**status["details"], "causes": sorted(causes, key=lambda cause: str(sorted(cause.items())))}
    return status


def pieces(message):
    """An aggregate error message with sorted errors."""
    found = re.match(r"^(.*?: )\[(.*)\]$", message, re.S)
    return found[1] + "[" + ", ".join(sorted(found[2].split(", "))) + "]" if found else message


def signature(one, other):
    """The kind of a difference, by the path of the first one."""
    if in_order(one) == in_order(other):
        return "order " + brief(one)
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
