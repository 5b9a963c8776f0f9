"""What a misbehaving agent tries. Each must be refused; what happened is printed as one line of JSON."""

import json
import os
import socket
import urllib.error
import urllib.request

from mesh import Refused, say, weft


def publish(subject):
    """Publishes over the sandbox's own NATS connection, as any NATS client would; raises what the server said."""
    with socket.create_connection(("127.0.0.1", 4222), timeout=10) as s:
        f = s.makefile("rwb")
        f.readline()  # INFO
        f.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"lang":"python","version":"0"}\r\n')
        f.write(f"PUB {subject} 2\r\n{{}}\r\nPING\r\n".encode())
        f.flush()
        while True:
            line = f.readline().decode()
            if line.startswith("-ERR"):
                raise Refused("denied", line[5:].strip().strip("'"))
            if line.startswith("PONG") or not line:
                return f"the server took a publish to {subject}"


def reviewers_secret():
    req = urllib.request.Request(os.environ["VAULT_ADDR"] + "/v1/transit/sign/report-key", method="PUT",
                                 data=json.dumps({"input": "eA=="}).encode())
    try:
        with urllib.request.urlopen(req, timeout=10) as r:
            return r.read().decode()
    except urllib.error.HTTPError as e:
        raise Refused("denied" if e.code == 403 else str(e.code), f"HTTP {e.code} {e.read(200).decode(errors='replace').strip()}") from None


def host_file():
    for path in ("/proc/1/root/etc/shadow", "/etc/shadow", "/.weft/../../etc/shadow"):
        with open(path, encoding="utf-8") as f:
            return f"{path}: {f.readline()}"


def network():
    with socket.create_connection(("192.0.2.1", 80), timeout=3):
        return "a connection to 192.0.2.1:80"


def run():
    env = os.environ
    t, w, p = env["WEFT_TENANT"], env["WEFT_WORKSPACE"], env["WEFT_PRINCIPAL"]
    tries = [
        ("sign with the reviewer's key", reviewers_secret),
        ("grant itself the key", lambda: weft("secret", "grant", "report-key", "--agent", p, "--as", "vault")),
        ("send a message as the planner", lambda: publish(f"weft.v1.msg.{t}.{w}.reviewer.planner")),
        ("submit into another workspace", lambda: publish(f"weft.v1.task.{t}.production.{p}.submit")),
        ("write a task's record", lambda: publish(f"weft.v1.evt.{t}.{w}.task.{env['WEFT_TASK']}")),
        ("read the host's /etc/shadow", host_file),
        ("reach the network", network),
    ]
    for what, attempt in tries:
        try:
            out = {"attack": what, "refused": False, "code": "", "got": str(attempt())[:200]}
        except Refused as e:
            out = {"attack": what, "refused": True, "code": e.code, "said": e.message[:200]}
        except OSError as e:
            out = {"attack": what, "refused": True, "code": "denied", "said": os.strerror(e.errno) if e.errno else str(e)}
        say(json.dumps(out))
