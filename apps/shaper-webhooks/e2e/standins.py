#!/usr/bin/env python3
"""What a cluster has and an API server has not, as far as the charts need it.

  * cert-manager: its CRDs, self-signed and CA Issuers, Certificates (issued, renewed when due or when the
    condition Issuing asks for it, keys kept or rotated as rotationPolicy says), and the CA injector with its
    three annotations on webhook configurations, CRDs and APIServices
  * a kubelet for one Deployment: its Secret and ConfigMap as files that change as mounted ones do, its
    program as a local process with the service account's own token, and a port that leads to the newest
    process once that is ready

Needs Python with PyYAML, and openssl. Ends with SIGTERM.
"""

import argparse
import base64
import copy
import datetime
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import yaml

GROUP = "cert-manager.io"
RFC3339 = "%Y-%m-%dT%H:%M:%SZ"


def log(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


class Conflict(Exception):
    """Somebody else wrote: look again."""


class Api:
    """A client with the credentials of a kubeconfig."""

    def __init__(self, kubeconfig, folder):
        self.config = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
        cluster = self.config["clusters"][0]["cluster"]
        user = self.config["users"][0]["user"]
        self.base = cluster["server"].rstrip("/")
        self.authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=self.authority)
        self.headers = {"Accept": "application/json"}
        if "token" in user:
            self.headers["Authorization"] = f"Bearer {user['token']}"
        if "client-certificate-data" in user:
            files = []
            for name in ("client-certificate-data", "client-key-data"):
                path = folder / name
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(user[name]))
                files.append(path)
            self.context.load_cert_chain(*files)

    def call(self, method, path, body=None, kind="application/json"):
        """The answer, or None when there is no such object."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {**self.headers, "Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code == 409:
                raise Conflict from error
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:300]}") from error

    def list(self, path):
        return (self.call("GET", path) or {}).get("items", [])


def openssl(*arguments, given=None):
    done = subprocess.run(["openssl", *arguments], input=given, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {' '.join(arguments)}: {done.stderr.decode()}")
    return done.stdout


def seconds(duration, default):
    """Go's durations, as far as certificates have them."""
    if not duration:
        return default
    total, number = 0.0, ""
    for character in duration:
        if character in "hms":
            total += float(number) * {"h": 3600, "m": 60, "s": 1}[character]
            number = ""
        else:
            number += character
    return total


def condition(status, kind):
    return next((each for each in status.get("conditions", []) if each["type"] == kind), None)


def set_condition(status, kind, value, reason, generation):
    found = condition(status, kind)
    conditions = status.setdefault("conditions", [])
    if found is None:
        found = {"type": kind}
        conditions.append(found)
    if found.get("status") != value:
        found["lastTransitionTime"] = datetime.datetime.now(datetime.timezone.utc).strftime(RFC3339)
    found |= {"status": value, "reason": reason, "message": reason, "observedGeneration": generation}


class CertManager:
    """Issues certificates, and injects the authorities that signed them."""

    def __init__(self, api, folder):
        self.api, self.folder = api, folder

    def install(self):
        for plural, kind, scope in (
            ("issuers", "Issuer", "Namespaced"),
            ("clusterissuers", "ClusterIssuer", "Cluster"),
            ("certificates", "Certificate", "Namespaced"),
        ):
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            definition = {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "scope": scope,
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                    "versions": [
                        {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
                    ],
                },
            }
            self.api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)

    def look(self):
        issuers = {}
        for plural in ("issuers", "clusterissuers"):
            for issuer in self.api.list(f"/apis/{GROUP}/v1/{plural}"):
                self.ready_issuer(issuer, plural)
                meta = issuer["metadata"]
                issuers[(issuer.get("kind", plural), meta.get("namespace"), meta["name"])] = issuer
                issuers[(plural, meta.get("namespace"), meta["name"])] = issuer
        for certificate in self.api.list(f"/apis/{GROUP}/v1/certificates"):
            self.issue(certificate, issuers)
        self.inject()

    def secret(self, namespace, name):
        return self.api.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")

    def authority(self, issuer, namespace):
        """The Secret of an issuer's authority: {} when it signs itself, None when it is not there yet."""
        spec = issuer["spec"]
        if "selfSigned" in spec:
            return {}
        found = self.secret(namespace, spec["ca"]["secretName"])
        return found if found and found.get("data", {}).get("tls.key") else None

    def ready_issuer(self, issuer, plural):
        meta, status = issuer["metadata"], copy.deepcopy(issuer.get("status", {}))
        there = self.authority(issuer, meta.get("namespace", "cert-manager")) is not None
        reason = ("KeyPairVerified" if "ca" in issuer["spec"] else "IsReady") if there else "ErrGetKeyPair"
        set_condition(status, "Ready", "True" if there else "False", reason, meta.get("generation", 1))
        if status != issuer.get("status"):
            where = f"namespaces/{meta['namespace']}/{plural}" if plural == "issuers" else plural
            self.api.call("PUT", f"/apis/{GROUP}/v1/{where}/{meta['name']}/status", {**issuer, "status": status})

    def is_due(self, certificate, secret):
        """Why a certificate has to be issued, or None."""
        status, spec = certificate.get("status", {}), certificate["spec"]
        if not secret or not secret.get("data", {}).get("tls.crt"):
            return "DoesNotExist"
        issuing = condition(status, "Issuing")
        if issuing and issuing["status"] == "True":
            return issuing["reason"]
        annotations = secret["metadata"].get("annotations", {})
        if annotations.get(f"{GROUP}/alt-names") != ",".join(spec.get("dnsNames", [])) or annotations.get(
            f"{GROUP}/issuer-name"
        ) != spec["issuerRef"]["name"]:
            return "SecretMismatch"
        if status.get("renewalTime", "9999") <= datetime.datetime.now(datetime.timezone.utc).strftime(RFC3339):
            return "Renewing"
        return None

    def issue(self, certificate, issuers):
        meta, spec = certificate["metadata"], certificate["spec"]
        namespace, reference = meta["namespace"], spec["issuerRef"]
        secret = self.secret(namespace, spec["secretName"])
        reason = self.is_due(certificate, secret)
        if reason is None:
            return
        cluster = reference.get("kind") == "ClusterIssuer"
        issuer = issuers.get(("clusterissuers", None, reference["name"]) if cluster else ("issuers", namespace, reference["name"]))
        if issuer is None:
            return
        authority = self.authority(issuer, "cert-manager" if cluster else namespace)
        if authority is None:
            return
        lifetime = seconds(spec.get("duration"), 90 * 24 * 3600)
        signed, key, ca = self.sign(spec, secret, authority, lifetime)
        data = {"tls.crt": signed, "tls.key": key, "ca.crt": ca}
        new = secret or {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": spec["secretName"]}}
        new["data"] = {name: base64.b64encode(value).decode() for name, value in data.items()}
        new["metadata"].setdefault("annotations", {}).update(
            {
                f"{GROUP}/certificate-name": meta["name"],
                f"{GROUP}/alt-names": ",".join(spec.get("dnsNames", [])),
                f"{GROUP}/common-name": spec.get("commonName", ""),
                f"{GROUP}/issuer-name": reference["name"],
                f"{GROUP}/issuer-kind": reference.get("kind", "Issuer"),
                f"{GROUP}/issuer-group": reference.get("group", GROUP),
            }
        )
        path = f"/api/v1/namespaces/{namespace}/secrets"
        self.api.call("PUT" if secret else "POST", f"{path}/{spec['secretName']}" if secret else path, new)
        status = certificate.setdefault("status", {})
        status["conditions"] = [each for each in status.get("conditions", []) if each["type"] != "Issuing"]
        set_condition(status, "Ready", "True", "Ready", meta.get("generation", 1))
        now = datetime.datetime.now(datetime.timezone.utc)
        before = seconds(spec.get("renewBefore"), lifetime / 3)
        status |= {
            "notBefore": now.strftime(RFC3339),
            "notAfter": (now + datetime.timedelta(seconds=lifetime)).strftime(RFC3339),
            "renewalTime": (now + datetime.timedelta(seconds=lifetime - before)).strftime(RFC3339),
            "revision": status.get("revision", 0) + 1,
        }
        self.api.call("PUT", f"/apis/{GROUP}/v1/namespaces/{namespace}/certificates/{meta['name']}/status", certificate)
        log("issued", f"{namespace}/{meta['name']}", "revision", status["revision"], "because", reason)

    def sign(self, spec, secret, authority, lifetime):
        """A certificate with its key, and the authority that signed it."""
        kept = spec.get("privateKey", {}).get("rotationPolicy", "Always") == "Never"
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            at = pathlib.Path(folder)
            if kept and secret:
                (at / "key").write_bytes(base64.b64decode(secret["data"]["tls.key"]))
            else:
                (at / "key").write_bytes(openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"))
            names = ",".join(f"DNS:{name}" for name in spec.get("dnsNames", []))
            lines = ["[v3]", f"basicConstraints=critical,CA:{'TRUE' if spec.get('isCA') else 'FALSE'}", "subjectKeyIdentifier=hash"]
            if spec.get("isCA"):
                lines.append("keyUsage=critical,digitalSignature,keyCertSign,cRLSign")
            else:
                lines += ["keyUsage=critical,digitalSignature", "extendedKeyUsage=serverAuth"]
            if names:
                lines.append(f"subjectAltName={'' if spec.get('commonName') else 'critical,'}{names}")
            (at / "extensions").write_text("\n".join(lines) + "\n")
            subject = f"/CN={spec['commonName']}" if spec.get("commonName") else "/"
            (at / "request").write_bytes(openssl("req", "-new", "-key", str(at / "key"), "-subj", subject))
            signer = ["-signkey", str(at / "key")]
            if authority:
                (at / "ca.crt").write_bytes(base64.b64decode(authority["data"]["tls.crt"]))
                (at / "ca.key").write_bytes(base64.b64decode(authority["data"]["tls.key"]))
                signer = ["-CA", str(at / "ca.crt"), "-CAkey", str(at / "ca.key")]
            serial = ["-set_serial", f"0x{os.urandom(16).hex()}"]
            days = ["-days", str(max(1, int(lifetime // 86400)))]
            extensions = ["-extfile", str(at / "extensions"), "-extensions", "v3"]
            signed = openssl("x509", "-req", "-in", str(at / "request"), *signer, *serial, *days, *extensions)
            ca = (at / "ca.crt").read_bytes() if authority else signed
            return signed, (at / "key").read_bytes(), ca

    def injected(self, annotations):
        """The authority that an object asks for, in base64, or None."""
        if source := annotations.get(f"{GROUP}/inject-ca-from"):
            namespace, _, name = source.partition("/")
            certificate = self.api.call("GET", f"/apis/{GROUP}/v1/namespaces/{namespace}/certificates/{name}")
            secret = certificate and self.secret(namespace, certificate["spec"]["secretName"])
            if secret and secret["metadata"].get("annotations", {}).get(f"{GROUP}/certificate-name") == name:
                return secret.get("data", {}).get("ca.crt")
        elif source := annotations.get(f"{GROUP}/inject-ca-from-secret"):
            namespace, _, name = source.partition("/")
            secret = self.secret(namespace, name)
            if secret and secret["metadata"].get("annotations", {}).get(f"{GROUP}/allow-direct-injection") == "true":
                return secret.get("data", {}).get("ca.crt")
        elif annotations.get(f"{GROUP}/inject-apiserver-ca") == "true":
            return base64.b64encode(self.api.authority.encode()).decode()
        return None

    def inject(self):
        for path, places in (
            ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", webhook_places),
            ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", webhook_places),
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", conversion_places),
            ("/apis/apiregistration.k8s.io/v1/apiservices", lambda found: [found["spec"]] if "service" in found["spec"] else []),
        ):
            for found in self.api.list(path):
                authority = self.injected(found["metadata"].get("annotations", {}))
                where = places(found) if authority else []
                if all(place.get("caBundle") == authority for place in where):
                    continue
                for place in where:
                    place["caBundle"] = authority
                self.api.call("PUT", f"{path}/{found['metadata']['name']}", found)
                log("injected", found["metadata"]["name"])


def webhook_places(found):
    return [webhook["clientConfig"] for webhook in found.get("webhooks", [])]


def conversion_places(found):
    webhook = found["spec"].get("conversion", {}).get("webhook", {})
    return [webhook["clientConfig"]] if "clientConfig" in webhook else []


class Kubelet:
    """Runs the program of one Deployment."""

    def __init__(self, api, folder, arguments):
        self.api, self.folder, self.arguments = api, folder, arguments
        self.current = None  # (start configuration, process, port)
        self.count = 0
        self.mounted = {}
        self.listener = socket.create_server(("127.0.0.1", arguments.port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            incoming, _ = self.listener.accept()
            threading.Thread(target=self.forward, args=(incoming,), daemon=True).start()

    def forward(self, incoming):
        if self.current is None:
            incoming.close()
            return
        try:
            outgoing = socket.create_connection(("127.0.0.1", self.current[2]), 5)
            outgoing.settimeout(None)
        except OSError:
            incoming.close()
            return

        def pump(source, target):
            try:
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        threading.Thread(target=pump, args=(outgoing, incoming), daemon=True).start()
        pump(incoming, outgoing)

    def mount(self, name, data):
        """Files of a volume, replaced all at once as the kubelet does: by one link."""
        at = self.folder / name
        if self.mounted.get(name) == data:
            return at
        at.mkdir(exist_ok=True)
        self.count += 1
        version = at / f"..{self.count}"
        version.mkdir()
        for key, value in data.items():
            (version / key).write_bytes(value)
        (at / "..new").symlink_to(version.name)
        (at / "..new").rename(at / "..data")
        for key in data:
            if not (at / key).is_symlink():
                (at / key).symlink_to(f"..data/{key}")
        self.mounted[name] = data
        return at

    def look(self):
        namespace, name = self.arguments.namespace, self.arguments.deployment
        deployment = self.api.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        if deployment is None:
            self.stop()
            return
        pod = deployment["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        secret = self.api.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{volumes['cert']['secret']['secretName']}")
        config = self.api.call("GET", f"/api/v1/namespaces/{namespace}/configmaps/{volumes['config']['configMap']['name']}")
        if secret is None or config is None:
            return
        certificates = self.mount("cert", {key: base64.b64decode(value) for key, value in secret["data"].items()})
        text = config["data"]["config.yaml"]
        # A Pod is replaced when its template changes, which includes the checksum of the configuration.
        started_with = json.dumps([deployment["spec"]["template"], text], sort_keys=True)
        if self.current and self.current[0] == started_with:
            if self.current[1].poll() is not None:
                log("the program ended with", self.current[1].returncode)
                self.current = None
            return
        self.start(started_with, pod["serviceAccountName"], certificates, yaml.safe_load(text))

    def start(self, started_with, account, certificates, config):
        self.count += 1
        namespace = self.arguments.namespace
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", request)
        kubeconfig = copy.deepcopy(self.api.config)
        kubeconfig["users"][0]["user"] = {"token": token["status"]["token"]}
        path = self.folder / f"kubeconfig-{self.count}"
        path.write_text(json.dumps(kubeconfig))
        ports = [free_port() for _ in range(3)]
        config["kubeconfigPath"] = str(path)
        config["webhookServer"] |= {"host": "127.0.0.1", "port": ports[0], "certDir": str(certificates)}
        config["probesServer"]["port"], config["metricsServer"]["port"] = ports[1:]
        file = self.folder / f"config-{self.count}.yaml"
        file.write_text(json.dumps(config))
        output = open(self.folder / "program.log", "ab")
        environment = {**os.environ, "SHAPER_WEBHOOK_CONFIG_PATH": str(file)}
        process = subprocess.Popen([self.arguments.program], stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
        output.close()
        probe = f"http://127.0.0.1:{ports[1]}{config['probesServer']['readinessPath']}"
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(probe, timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    raise RuntimeError("the program does not become ready: see program.log") from None
                time.sleep(0.05)
        before, self.current = self.current, (started_with, process, ports[0])
        log("started process", process.pid)
        if before:
            before[1].send_signal(signal.SIGTERM)
            before[1].wait(60)

    def stop(self):
        if self.current:
            _, process, _ = self.current
            self.current = None
            process.send_signal(signal.SIGTERM)
            log("the program ended with", process.wait(60))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--program", required=True, help="the webhooks' program")
    parser.add_argument("--port", type=int, required=True, help="where the API server finds the Service")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="for files and logs")
    parser.add_argument("--namespace", default="shaper-system")
    parser.add_argument("--deployment", default="shaper-webhooks")
    arguments = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    api = Api(arguments.kubeconfig, arguments.folder)
    cert_manager = CertManager(api, arguments.folder)
    kubelet = Kubelet(api, arguments.folder, arguments)
    cert_manager.install()
    log("ready")
    while not ended.wait(0.1):
        for part in (cert_manager, kubelet):
            try:
                part.look()
            except Conflict:
                pass
            except (OSError, RuntimeError) as error:
                log("failed:", error)
    kubelet.stop()


if __name__ == "__main__":
    main()
