"""What memory holds of a folder from one audit to the next: the digest and the lines of every file.

A fact has a limit, so the figures lie in as many facts as they need, and one under the folder's name says where. That one
is written last: an analyst that is ended in the middle, and tried again, finds the figures of the audit before this one.
"""

import json
import os

from mesh import fact, remember

LIMIT = 24 << 10  # bytes of the figures in one fact


def recall(folder):
    """The figures of the audit before this one, by path; None if there was none."""
    entry = earlier(folder)
    if entry is None:
        return None
    figures = {}
    for i in range(entry["parts"]):
        figures.update(fact(part(folder, entry["task"], i))["files"])
    return figures


def keep(folder, found):
    """Stores the figures in the place of those before."""
    me, before = os.environ["WEFT_TASK"], earlier(folder)
    parts = split(found["files"])
    for i, files in enumerate(parts):
        remember(part(folder, me, i), f"Figures of folder {folder}, part {i + 1} of {len(parts)}.", {"files": files})
    text = f"Folder {folder} has {len(found['files'])} files and {found['lines']} lines."
    remember(name(folder), text, {"task": me, "parts": len(parts), "lines": found["lines"], "before": before})


def earlier(folder):
    """The entry of the audit before this one: where its figures lie."""
    entry = fact(name(folder))
    if entry and entry["task"] == os.environ["WEFT_TASK"]:  # written by an earlier attempt of this very task
        entry = entry["before"]
    return entry and {"task": entry["task"], "parts": entry["parts"]}


def name(folder):
    return f"folder:{folder}"


def part(folder, task, i):
    return f"figures:{folder}:{task}:{i}"


def split(files):
    parts, size = [{}], 0
    for path, figures in files.items():
        more = len(json.dumps(path)) + len(json.dumps(figures)) + 4
        if size + more > LIMIT:
            parts, size = parts + [{}], 0
        parts[-1][path] = figures
        size += more
    return parts
