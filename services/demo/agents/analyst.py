"""Audits one top folder in a private overlay, and reports: findings as a file, facts in memory, a message to the reviewer."""

import json
import os
import time

import attack
from measure import audit
from mesh import OUT, fact, files, remember, say, task_input, weft

work = task_input()
folder, key = work["folder"], "folder:" + work["folder"]
if work["misbehave"]:
    attack.run()

paths = files(folder)
say(f"{folder}: reading {len(paths)} files")
found = audit(paths)
for step in range(int(work["slow"] * 10)):  # so that there is a middle in which the daemon can be killed
    say(f"{folder}: pass over the figures {step + 1}")
    time.sleep(0.1)

before = fact(key)
if before:
    old, new = before["files"], found["files"]
    found["changed"] = sorted(p for p in new if p in old and old[p][0] != new[p][0])
    found["added"] = sorted(p for p in new if p not in old)
    found["removed"] = sorted(p for p in old if p not in new)
    found["before"] = {p: old[p][1] for p in found["changed"]}
    say(f"{folder}: memory knows this folder; {len(found['changed'])} files changed")

os.makedirs(f"{OUT}/findings", exist_ok=True)
name = "root" if folder == "." else folder
with open(f"{OUT}/findings/{name}.json", "w", encoding="utf-8") as f:
    json.dump({"folder": folder, **found}, f, indent=1, sort_keys=True)

remember(key, f"Folder {folder} has {len(paths)} files and {found['lines']} lines.", {"files": found["files"], "lines": found["lines"]})
g = work["group"]
weft("msg", "send", "reviewer", "--group", g["id"], "--group-size", str(g["size"]),
     stdin=json.dumps({"folder": folder, "lines": found["lines"], "files": len(paths), "pass": work["pass"]}))
say(f"{folder}: {found['lines']} lines, {len(found['keys'])} things that look like keys; reported")
