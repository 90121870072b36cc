"""Two API servers with the same set-up: kube-apiserver with etcd, and `lockgate serve`.

Both listen on 127.0.0.1, accept the same tokens and run no controllers, so that a response shows effects of
its request only.
"""

import atexit
import calendar
import http.client
import json
import os
import re
import ssl
import subprocess
import tempfile
import threading
import time

TOKENS = 'admin-token,admin,1,"system:masters"\njane-token,jane,2,"devs"\nnode-token,system:node:n1,3,"system:nodes"\n'
CONTEXT = ssl._create_unverified_context()


class Server:
    """One API server."""

    def __init__(self, name, port):
        self.name, self.port, self.local = name, port, threading.local()

    def request(self, method, path, body=None, token="admin-token", kind="application/json", headers=None):
        """The status, the JSON body, and the warnings of a response. The status is 0 if the connection was closed without one."""
        told = {"Authorization": f"Bearer {token}", "Content-Type": kind, "Accept": "application/json"}
        told.update(headers or {})
        # Without whitespace, as Go's clients encode: upstream compares the bytes of raw data.
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))).encode()
        for attempt in range(3):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=CONTEXT, timeout=60)
                self.local.connection = connection
            try:
                connection.request(method, path, data, told)
                answer = connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, OSError) as failure:
                connection.close()
                self.local.connection = None
                if attempt == 2:
                    if isinstance(failure, http.client.RemoteDisconnected):
                        return 0, {"message": "connection closed without an answer"}, []
                    raise
        try:
            value = json.loads(text)
        except ValueError:
            value = text.decode(errors="replace")
        return answer.status, value, answer.headers.get_all("Warning") or []

    def ready(self):
        for _ in range(120):
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.5)
        raise SystemExit(f"{self.name} does not become ready")


def start(folder, enabled="", disabled="", kube=True, audit=None):
    """Starts both servers, with logs in `folder`; stops them at exit. `audit` is an audit policy."""
    os.makedirs(folder, exist_ok=True)
    started = []

    def end():
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    atexit.register(end)

    def run(name, arguments):
        log = open(f"{folder}/{name}.log", "w")
        process = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        started.append(process)
        time.sleep(1)
        if process.poll() is not None:
            raise SystemExit(f"{name} ended: see {log.name}")

    tokens = f"{folder}/tokens.csv"
    with open(tokens, "w") as file:
        file.write(TOKENS)
    plugins = [f"--enable-admission-plugins={enabled}"] if enabled else []
    plugins += [f"--disable-admission-plugins={disabled}"] if disabled else []
    audited = lambda name: [f"--audit-policy-file={audit}", f"--audit-log-path={folder}/audit-{name}.log"] if audit else []
    base = int(os.environ.get("PORT", "46443"))
    ours = Server("lockgate", base + 1)
    run("lockgate", [
        os.environ.get("LOCKGATE", "lockgate"), "serve", "--bind-address=127.0.0.1",
        f"--secure-port={ours.port}", f"--token-auth-file={tokens}", "--controllers=-*",
        f"--kubeconfig-out={folder}/kubeconfig", "--log-level=warn",
        "--max-requests-inflight=0", "--max-mutating-requests-inflight=0", *plugins, *audited(ours.name)])
    theirs = None
    if kube:
        theirs = Server("kube-apiserver", base)
        key = f"{folder}/sa.key"
        if not os.path.exists(key):
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        data = tempfile.mkdtemp(dir=folder)
        client, peer = f"http://127.0.0.1:{base + 2}", f"http://127.0.0.1:{base + 3}"
        run("etcd", [
            os.environ.get("ETCD", "etcd"), "--data-dir", data, "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--unsafe-no-fsync"])
        run("kube-apiserver", [
            os.environ.get("KUBE_APISERVER", "kube-apiserver"), f"--etcd-servers={client}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={theirs.port}",
            f"--cert-dir={folder}/certs", f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/12", "--endpoint-reconciler-type=none",
            "--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false", *plugins, *audited(theirs.name)])
        theirs.ready()
    ours.ready()
    return theirs, ours


UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
RANDOM = re.compile(r"kube-api-access-[a-z0-9]{5}\b")
# Type names of custom resources end in a timestamp.
SELF_TYPE = re.compile(r"\bselfType\d+\b")
# Storage revisions, and current times.
REVISION = re.compile(r"\d+")
VERSION = re.compile(r'("resourceVersion\\*":\\*"|ResourceVersion in record \(|ResourceVersion in object meta: )\d+')
# The name of a scheme contains the path at which upstream's source was built.
SCHEME = re.compile(r'in scheme (\\*")[^"\\]*\\*"')
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# Addresses and ports are allocated from pools in random order.
ALLOCATED = {"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"}


def normal(value, at=""):
    """A response without nondeterministic values."""
    if isinstance(value, dict):
        if at == "metadata" or at == "details":
            value = dict(value)
            if REVISION.fullmatch(str(value.get("resourceVersion"))):
                value["resourceVersion"] = "REVISION"
            if value.get("generateName") and str(value.get("name")).startswith(value["generateName"][:58]):
                value["name"] = "generated"
        if at == "spec" or "port" in value:
            value = {key: "allocated" if key in ALLOCATED and inner != "None" else inner for key, inner in value.items()}
        return {key: normal(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [normal(inner) for inner in value]
    if isinstance(value, str):
        # Upstream appends a diff of its internal Go types (gaps.toml).
        if "immutable" in value or "may not change" in value or "not allowed to update fields" in value:
            value = re.split(r"\n@@|: @@", value)[0].rstrip("\n")
        value = SCHEME.sub(r"in scheme \1SCHEME\1", VERSION.sub(r"\1REVISION", value))
        value = TIME.sub(lambda found: "NOW" if is_now(found[0]) else found[0], value)
        value = RANDOM.sub("kube-api-access-xxxxx", SELF_TYPE.sub("selfType0", value))
        return UID.sub("UID", value)
    return value


def is_now(text):
    """Returns True for a time within an hour from now."""
    try:
        told = calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return False
    return abs(told - time.time()) < 3600
