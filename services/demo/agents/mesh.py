"""How the demo's agents speak with the mesh: through the weft CLI that every sandbox has."""

import json
import os
import subprocess

SOURCE = "/workspace/src"  # the code base that is audited
OUT = "/workspace"


class Refused(Exception):
    """The mesh said no: a code and a sentence."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def weft(*args, stdin=None):
    """Runs `weft --json args`, gives what it printed as a value, and raises Refused where it failed."""
    p = subprocess.run(["weft", "--json", *args], input=stdin, capture_output=True, text=True, timeout=60)
    if p.returncode != 0:
        try:
            e = json.loads(p.stderr.strip().splitlines()[-1])["error"]
            raise Refused(e["code"], e["message"])
        except (ValueError, KeyError, IndexError, TypeError):
            raise Refused("failed", p.stderr.strip() or f"exit code {p.returncode}") from None
    return json.loads(p.stdout) if p.stdout.strip() else None


def task_input():
    """The task's input, as JSON says it."""
    with open(os.environ["WEFT_INPUT"], encoding="utf-8") as f:
        return json.load(f)


def say(text):
    print(text, flush=True)


def fact(key):
    """The valid fact called key as a value, or None."""
    try:
        item = weft("memory", "get", "--key", key)
    except Refused as e:
        if e.code == "not_found":
            return None
        raise
    item = item.get("item", item)
    return item.get("data")


def remember(key, text, data):
    """Stores a fact; one that is there is superseded, never overwritten."""
    args = ["--key", key, "--data", "-", "--text", text]
    body = json.dumps(data)
    try:
        weft("memory", "add", "--kind", "semantic", *args, stdin=body)
    except Refused as e:
        if e.code != "conflict":
            raise
        weft("memory", "supersede", *args, stdin=body)


def folders():
    """The top folders of the code base; "." holds the files beside them."""
    names = sorted(e.name for e in os.scandir(SOURCE) if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    return names + ["."]


def files(folder):
    """Every regular file of a top folder, by path below the source, sorted."""
    found = []
    if folder == ".":
        found = [e.name for e in os.scandir(SOURCE) if e.is_file(follow_symlinks=False)]
        hidden = [e.name for e in os.scandir(SOURCE) if e.is_dir(follow_symlinks=False) and e.name.startswith(".")]
    else:
        hidden = [folder]
    for top in hidden:
        for at, dirs, names in os.walk(os.path.join(SOURCE, top)):
            dirs.sort()
            for n in names:
                p = os.path.join(at, n)
                if os.path.isfile(p) and not os.path.islink(p):
                    found.append(os.path.relpath(p, SOURCE))
    return sorted(found)
