"""What a misbehaving agent tries. Each must be refused; what happened is printed as one line of JSON."""

import errno
import json
import os
import socket

from mesh import Away, Refused, once, patiently, say, vault_once, weft


def run(targets):
    """Tries everything. targets has "workspace", one that this agent has no business in, and "addresses" of the host."""
    t, w, p = (os.environ[name] for name in ("WEFT_TENANT", "WEFT_WORKSPACE", "WEFT_PRINCIPAL"))
    other = targets["workspace"]
    tries = [
        ("secret", "sign with the reviewer's key", sign),
        ("secret", "read the reviewer's secret", lambda: read("/run/secrets/sample-seed")),
        ("secret", "grant itself the reviewer's key", lambda: once("secret", "grant", "report-key", "--agent", p, "--as", "vault")),
        ("sender", "send a message as the planner", lambda: nats(f"PUB weft.v1.msg.{t}.{w}.reviewer.planner 2\r\n{{}}")),
        ("sender", "read the reviewer's messages", lambda: once("msg", "read", "--channel", "reviewer", "--from-start")),
        ("sender", "listen to the answers to others", lambda: nats("SUB _INBOX.> 1")),
        ("workspace", f"submit a task into workspace {other}", lambda: nats(f"PUB weft.v1.task.{t}.{other}.{p}.submit 2\r\n{{}}")),
        ("workspace", f"read the files of workspace {other}", lambda: once("--workspace", other, "files", "ls")),
        ("record", "write a task's record", lambda: nats(f"PUB weft.v1.evt.{t}.{w}.task.{os.environ['WEFT_TASK']} 2\r\n{{}}")),
        ("host", "read the host's /etc/shadow", lambda: read("/proc/1/root/etc/shadow", "/etc/shadow")),
        ("network", "reach the host and the cloud's metadata", lambda: connect(targets["addresses"] + ["169.254.169.254:80"])),
    ]
    for kind, what, attempt in tries:
        said = {"attack": kind, "what": what, "refused": True}
        try:
            said |= {"refused": False, "code": "", "said": str(patiently(attempt))}
        except Refused as e:
            said |= {"code": e.code, "said": e.message}
        said["said"] = said["said"][:200]
        say(json.dumps(said))


def sign():
    """Asks Vault for a signature. Where nothing is granted the node may end the connection without a word; that is a
    refusal, and not the mesh being away, if the mesh answers each time."""
    for _ in range(3):
        try:
            return vault_once("transit/sign/report-key", {"input": "eA=="})
        except Away as e:
            last = e
        weft("agent", "list")
    raise Refused("closed", last.message)


def nats(line):
    """Says one line of the NATS protocol over the sandbox's own connection, as any NATS client could."""
    try:
        with socket.create_connection(("127.0.0.1", 4222), timeout=10) as s:
            s.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"lang":"python","version":"0"}\r\n')
            s.sendall(line.encode() + b"\r\nPING\r\n")
            for answer in s.makefile("r", encoding="utf-8"):
                if answer.startswith("-ERR"):
                    raise Refused("denied", answer[5:].strip().strip("'"))
                if answer.startswith("PONG"):
                    return f"the server took {line.split()[1]}"
    except OSError as e:
        raise Away("unavailable", str(e)) from None
    raise Away("unavailable", "the connection ended")


def read(*paths):
    """Reads the first of the paths that can be read."""
    return first(paths, lambda path: open(path, encoding="utf-8").readline())


def connect(addresses):
    def dial(address):
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=3):
            return f"a connection to {address}"

    return first(addresses, dial)


def first(things, attempt):
    """What attempt gives for the first of the things; where each is refused, the system's reasons are the code."""
    codes, sentences = [], []
    for thing in things:
        try:
            return attempt(thing)
        except OSError as e:
            codes.append(errno.errorcode.get(e.errno, "timeout"))
            sentences.append(f"{thing}: {e.strerror or e}")
    raise Refused(" ".join(dict.fromkeys(codes)), "; ".join(sentences))
