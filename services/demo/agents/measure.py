"""What the audit measures of files: lines, functions, repeated blocks, and what looks like a committed key."""

import hashlib
import hmac
import math
import os
import re

from mesh import SOURCE

BLOCK = 8  # lines of a repeated block
LONGEST = 5  # how many of the longest files and functions a folder reports
LARGEST = 1 << 20  # bytes; a larger file is counted as one without lines
EVERY_BLOCK = 16 << 20  # bytes of text after which not every block is remembered any more

FUNCTION = re.compile(r"^(?:func\s+(?:\([^)]*\)\s*)?(\w+)|\s*(?:async\s+)?def\s+(\w+)|(?:export\s+)?(?:async\s+)?function\s+(\w+))")
KEYS = [
    ("private key block", re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)")),
    ("access key id", re.compile(r"\b(AKIA[0-9A-Z]{16})\b")),
    ("assigned secret", re.compile(r"""(?i)\b(?:secret|token|passw(?:or)?d|api_?key)\b\s*[:=]+\s*["']([A-Za-z0-9+/_\-]{20,})["']""")),
]


class Audit:
    """Takes files one by one, and gives what is to be said of all of them."""

    def __init__(self, fingerprint_key):
        self.fingerprint_key = fingerprint_key
        self.files, self.functions, self.keys = {}, [], []
        self.seen, self.repeated, self.text_bytes = {}, {}, 0

    def add(self, path):
        digest, lines = read(path)
        self.files[path] = [digest, len(lines)]
        self.text_bytes += sum(map(len, lines))
        self.functions += [{"path": path, "name": name, "line": at, "lines": n} for name, at, n in functions(lines)]
        self.functions = longest(self.functions)
        self.keys += self.suspicious(path, lines)
        self.compare(path, lines)

    def result(self):
        """Everything as a value that goes into JSON. files has a digest and the lines of each."""
        pairs = sorted(self.repeated.items(), key=lambda e: (-e[1], e[0]))[:LONGEST]
        return {
            "files": self.files,
            "lines": sum(n for _, n in self.files.values()),
            "longest_files": longest([{"path": p, "lines": n} for p, (_, n) in self.files.items()]),
            "longest_functions": self.functions,
            "duplicates": [{"a": a, "b": b, "blocks": n} for (a, b), n in pairs],
            "keys": self.keys[:20],
        }

    def suspicious(self, path, lines):
        """What looks like a key, never the key itself: its keyed fingerprint tells that two places have the same one."""
        for i, line in enumerate(lines):
            for what, pattern in KEYS:
                m = pattern.search(line)
                if m and (what != "assigned secret" or entropy(m.group(1)) > 3.5):
                    mark = hmac.new(self.fingerprint_key, m.group(1).encode(), "sha256").hexdigest()[:12]
                    yield {"path": path, "line": i + 1, "what": what, "fingerprint": mark}

    def compare(self, path, lines):
        """Counts the blocks that an earlier file has, too."""
        keep = 1 + self.text_bytes // EVERY_BLOCK
        for h in blocks(lines):
            if int(h[:4], 16) % keep:
                continue
            first = self.seen.setdefault(h, path)
            if first != path:
                self.repeated[(first, path)] = self.repeated.get((first, path), 0) + 1


def longest(things):
    return sorted(things, key=lambda t: (-t["lines"], t["path"], t.get("line", 0)))[:LONGEST]


def read(path):
    """A file's digest, and its lines; none where it is no text or too large."""
    digest = hashlib.sha256()
    with open(os.path.join(SOURCE, path), "rb") as f:
        head = f.read(LARGEST + 1)
        digest.update(head)
        while more := f.read(1 << 16):
            digest.update(more)
    if len(head) > LARGEST or b"\0" in head[:8192]:
        return digest.hexdigest()[:16], []
    lines = head.decode("utf-8", "replace").split("\n")
    return digest.hexdigest()[:16], lines if lines[-1] else lines[:-1]


def functions(lines):
    """Name, first line and length of every function, by indentation: it ends where its own level comes back."""
    found, start, name, level = [], None, None, 0
    for i, line in enumerate(lines):
        text = line.strip()
        if not text:
            continue
        indent = len(line) - len(line.lstrip())
        if start is not None and indent <= level and i > start:
            closing = text.startswith("}")
            found.append((name, start + 1, i - start + closing))
            start = None
            if closing:
                continue
        m = FUNCTION.match(line) if start is None else None
        if m:
            start, level, name = i, indent, next(g for g in m.groups() if g)
    if start is not None:
        found.append((name, start + 1, len(lines) - start))
    return found


def blocks(lines):
    """The hash of every run of BLOCK lines that say something."""
    kept = [text for text in map(str.strip, lines) if len(text) > 3]
    for k in range(len(kept) - BLOCK + 1):
        yield hashlib.sha1("\n".join(kept[k : k + BLOCK]).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:12]


def entropy(s):
    """Bits per character."""
    return -sum(n / len(s) * math.log2(n / len(s)) for n in (s.count(c) for c in set(s)))
