#!/usr/bin/env python3
"""Generated patches of clients on both servers: JSON patches, merge patches, strategic merge patches, and server-side apply.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./changes.py FOLDER COUNT [SEED] [KIND,KIND…]

Objects are varied as in `validation.py`; the difference is sent in one of the four formats, for the object or its status.
Managed fields are compared, too.
"""

import copy
import json
import re

import validation
from patches import difference

FORMS = ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]


def merged(old, new):
    """The merge patch that turns one value into the other."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    made = {key: None for key in old if key not in new}
    return made | {key: merged(old.get(key), value) for key, value in new.items() if old.get(key) != value or key not in old}


def explain(one, other, request):
    """Known differences in gaps.toml: key order of patched objects in errors, and strategic merge patches shown as sent."""
    if one[0] == other[0] == 422 and "strategic" in str(request[4:]) and any(part is None for part in validation.parts(request[2])) and without_nulls(one) == without_nulls(other):
        return "nulls of a patch"
    if one[0] == other[0] == 422 and as_values(one) == as_values(other):
        return "order of members in a text"
    return plain(one, other, request)


def without_nulls(answer):
    return re.sub(r"\w+:<nil> ?", "", json.dumps(answer[1])), answer[2]


def as_values(answer):
    """The decoded objects in the errors of a response, and the rest of the response."""
    status = json.loads(json.dumps(answer[1]))
    found = []
    for cause in (status.get("details") or {}).get("causes") or []:
        text = re.fullmatch(r'Invalid value: ("\{.*\}"): (.*)', cause.get("message", ""), re.S)
        if text:
            try:
                found.append((without_own(json.loads(json.loads(text[1]))), text[2]))
            except ValueError:
                return answer
            cause["message"] = ""
            status["message"] = ""
    return found, status, answer[2]


def without_own(value):
    """An object without what the server of Lockgate says in its status, which kube-apiserver was told not to."""
    if value.get("kind") in ("FlowSchema", "PriorityLevelConfiguration"):
        value.pop("status", None)
        fields = value.get("metadata", {}).get("managedFields") or []
        value["metadata"]["managedFields"] = [entry for entry in fields if not entry.get("manager", "").startswith("api-priority-and-fairness")]
    return value


plain, validation.explain = validation.explain, explain


class Changes(validation.Run):
    # Some are created by server-side apply.
    CREATES = 0.1

    def create(self, at, objects):
        version, kind, path = at
        requests = []
        for _ in range(validation.GROUP):
            changed = self.generator.changed(self.rng.choice(objects))
            name = changed["metadata"].get("name") if isinstance(changed.get("metadata"), dict) else None
            if isinstance(name, str) and name and "/" not in name and "%" not in name and name not in (".", ".."):
                query = f"dryRun=All&fieldManager=a{self.rng.choice(['', '&force=true'])}{self.rng.choice(['', '&fieldValidation=Strict', '&fieldValidation=Ignore'])}"
                requests.append((f"{kind} applied anew", ("PATCH", f"{path}/{validation.urllib.parse.quote(name)}?{query}", changed, "admin-token", "application/apply-patch+yaml")))
        self.send(requests)

    def change(self, kind, path, live, changed):
        rng, form = self.rng, self.rng.choice(FORMS)
        sub = "/status" if path.endswith("/status") else ""
        live, changed = copy.deepcopy(live), copy.deepcopy(changed)
        if form == "json-patch+json":
            body = difference(live, changed)
        elif form == "apply-patch+yaml":
            body = changed
        else:
            body = merged(live, changed)
        query = f"dryRun=All&fieldManager={rng.choice(['t', 'u'])}{rng.choice(['', '', '&fieldValidation=Strict', '&fieldValidation=Ignore'])}"
        if form == "apply-patch+yaml":
            query += rng.choice(["", "&force=true", "&force=true"])
        return f"{kind} {form.split('-')[0]}{sub}", ("PATCH", f"{path}?{query}", body, "admin-token", f"application/{form}")


if __name__ == "__main__":
    validation.main(Changes)
