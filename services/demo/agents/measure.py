"""What the audit measures of files: lines, functions, repeated blocks, and what looks like a committed key."""

import hashlib
import math
import os
import re

from mesh import SOURCE

BLOCK = 8  # lines of a repeated block
LONGEST = 5  # how many of the longest files and functions a folder reports
LARGEST = 1 << 20  # bytes; a larger file is counted, not read

FUNCTION = re.compile(r"^(?:func\s+(?:\([^)]*\)\s*)?(\w+)|\s*(?:async\s+)?def\s+(\w+)|(?:export\s+)?(?:async\s+)?function\s+(\w+))")
KEYS = [
    ("private key block", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("access key id", re.compile(r"\bAKIA[0-9A-Z]{16}\b")),
    ("assigned secret", re.compile(r"""(?i)\b(?:secret|token|passw(?:or)?d|api_?key)\b\s*[:=]+\s*["']([A-Za-z0-9+/_\-]{20,})["']""")),
]


def read(path):
    """A file's text, or None where it is no text or too large."""
    full = os.path.join(SOURCE, path)
    if os.path.getsize(full) > LARGEST:
        return None
    with open(full, "rb") as f:
        b = f.read()
    if b"\0" in b[:8192]:
        return None
    return b.decode("utf-8", "replace")


def digest(path):
    h = hashlib.sha256()
    with open(os.path.join(SOURCE, path), "rb") as f:
        for part in iter(lambda: f.read(1 << 16), b""):
            h.update(part)
    return h.hexdigest()[:16]


def functions(lines):
    """Name and length of every function, by indentation: a function ends where its own level comes back."""
    found, start, name, level = [], None, None, 0
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if start is not None and indent <= level and i > start:
            closing = line.strip().startswith("}")
            found.append((name, start + 1, i - start + (1 if closing else 0)))
            start = None
            if closing:
                continue
        m = FUNCTION.match(line)
        if m and start is None:
            start, level, name = i, indent, next(g for g in m.groups() if g)
    if start is not None:
        found.append((name, start + 1, len(lines) - start))
    return found


def entropy(s):
    return -sum(n / len(s) * math.log2(n / len(s)) for n in (s.count(c) for c in set(s)))


def keys(path, lines):
    found = []
    for i, line in enumerate(lines):
        for what, pattern in KEYS:
            m = pattern.search(line)
            if m and (not m.groups() or entropy(m.group(1)) > 3.5):
                found.append({"path": path, "line": i + 1, "what": what})
    return found


def blocks(path, lines):
    """The hash of every run of BLOCK lines that say something, with where it begins."""
    kept = [(i, s) for i, s in ((i, line.strip()) for i, line in enumerate(lines)) if len(s) > 3]
    for k in range(len(kept) - BLOCK + 1):
        run = "\n".join(s for _, s in kept[k : k + BLOCK])
        yield hashlib.sha1(run.encode(), usedforsecurity=False).hexdigest()[:12], (path, kept[k][0] + 1)


def audit(paths):
    """Everything of one folder, as a value that goes into JSON."""
    by_file, longest_functions, suspicious, seen, repeated = {}, [], [], {}, {}
    for path in paths:
        text = read(path)
        if text is None:
            by_file[path] = [digest(path), 0]
            continue
        lines = text.splitlines()
        by_file[path] = [digest(path), len(lines)]
        longest_functions += [{"path": path, "name": n, "line": at, "lines": k} for n, at, k in functions(lines)]
        suspicious += keys(path, lines)
        for h, where in blocks(path, lines):
            if h in seen and seen[h][0] != path:
                repeated.setdefault((seen[h][0], path), 0)
                repeated[(seen[h][0], path)] += 1
            seen.setdefault(h, where)
    longest = sorted(by_file.items(), key=lambda e: (-e[1][1], e[0]))[:LONGEST]
    longest_functions.sort(key=lambda f: (-f["lines"], f["path"], f["line"]))
    pairs = sorted(repeated.items(), key=lambda e: (-e[1], e[0]))[:LONGEST]
    return {
        "files": by_file,
        "lines": sum(n for _, n in by_file.values()),
        "longest_files": [{"path": p, "lines": n} for p, (_, n) in longest],
        "longest_functions": longest_functions[:LONGEST],
        "duplicates": [{"a": a, "b": b, "runs": n} for (a, b), n in pairs],
        "keys": suspicious[:20],
    }
