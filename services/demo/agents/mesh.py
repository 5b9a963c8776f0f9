"""How the demo's agents speak with the mesh: through the weft CLI that every sandbox has.

The mesh may be away for a moment, as when its daemon is started again. What fails because of that is asked again, so
everything here is harmless when it happens twice: submissions have keys, facts have names, messages count once for a task.
"""

import http.client
import json
import os
import subprocess
import time
import urllib.error
import urllib.request

SOURCE = "/workspace/src"  # the code base that is audited
OUT = "/workspace"
PATIENCE = 60  # seconds for which the mesh may be away


class Refused(Exception):
    """The mesh said no: a code and a sentence."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Away(Refused):
    """Nobody answers just now."""


def weft(*args, stdin=None):
    """Runs `weft --json args` and gives what it printed as a value. Raises Refused where it failed."""
    return patiently(lambda: once(*args, stdin=stdin))


def once(*args, stdin=None):
    p = subprocess.run(["weft", "--json", *args], input=stdin, capture_output=True, text=True, timeout=120)
    if p.returncode == 0:
        said = json.loads(p.stdout)
        return said["items"] if "items" in said else said["item"]
    try:
        e = json.loads(p.stderr.strip().splitlines()[-1])["error"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise Refused("failed", p.stderr.strip() or f"exit code {p.returncode}") from None
    raise (Away if e["code"] in ("unavailable", "deadline") else Refused)(e["code"], e["message"])


def vault(path, body):
    """Asks Vault for what a grant of this agent allows. The sandbox has no token: the node adds it on the way."""
    return patiently(lambda: vault_once(path, body))


def vault_once(path, body):
    r = urllib.request.Request(os.environ["VAULT_ADDR"] + "/v1/" + path, method="PUT", data=json.dumps(body).encode())
    try:
        with urllib.request.urlopen(r, timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as e:
        said = e.read(500).decode(errors="replace").strip()
        if e.code >= 500:
            raise Away("unavailable", said) from None
        raise Refused("denied" if e.code == 403 else f"http {e.code}", said) from None
    except (OSError, http.client.HTTPException) as e:
        raise Away("unavailable", str(e)) from None


def patiently(ask):
    """Gives what ask gives, and asks again while the mesh is away."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except Away:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def task_input():
    """The task's input."""
    with open(os.environ["WEFT_INPUT"], encoding="utf-8") as f:
        return json.load(f)


def secret(name):
    """A credential that was given as a file, for as long as this task runs."""
    with open(f"/run/secrets/{name}", "rb") as f:
        return f.read()


def say(text):
    print(text, flush=True)


def fact(key):
    """The data of the fact that is valid under key, or None."""
    try:
        return weft("memory", "get", "--key", key).get("data")
    except Refused as e:
        if e.code == "not_found":
            return None
        raise


def remember(key, text, data):
    """Stores a fact. One that is there already is superseded, never overwritten."""
    args = ["--key", key, "--data", "-", "--text", text]
    body = json.dumps(data)
    try:
        weft("memory", "add", "--kind", "semantic", *args, stdin=body)
    except Refused as e:
        if e.code != "conflict":
            raise
        weft("memory", "supersede", *args, stdin=body)
