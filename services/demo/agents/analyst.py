"""Audits one top folder in a private overlay, and reports: findings as a file, facts in memory, a message to the reviewer."""

import json
import os
import time
from datetime import datetime, timezone

import attack
import ledger
from measure import Audit
from mesh import OUT, say, secret, task_input, weft
from tree import TOP, files

work = task_input()
folder = work["folder"]
if work.get("misbehave"):
    attack.run(work["misbehave"])

paths = files(folder)
audit = Audit(secret("fingerprint-key"))
steps = 16 if work["slow"] else 1  # in which the folder is read, with a line of output for each
for step in range(steps):
    part = paths[len(paths) * step // steps : len(paths) * (step + 1) // steps]
    for path in part:
        audit.add(path)
    time.sleep(work["slow"] / steps)
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    say(f"{step + 1}/{steps} read {len(paths) * (step + 1) // steps} of {len(paths)} files at {now}")
found = audit.result()

before = ledger.recall(folder)
if before is not None:
    now, found["changed"] = found["files"], []
    for path in sorted(now.keys() & before.keys()):
        if now[path][0] != before[path][0]:
            found["changed"].append({"path": path, "lines_before": before[path][1], "lines": now[path][1]})
    found["added"] = sorted(now.keys() - before.keys())
    found["removed"] = sorted(before.keys() - now.keys())
    say(f"memory knows this folder; changed: {len(found['changed'])}, new: {len(found['added'])}, gone: {len(found['removed'])}")
ledger.keep(folder, found)

# The file is in this task's own overlay; it gets into the workspace when the task has ended well.
where = "findings/files.json" if folder == TOP else f"findings/folder-{folder}.json"
os.makedirs(f"{OUT}/findings", exist_ok=True)
with open(f"{OUT}/{where}", "w", encoding="utf-8") as f:
    json.dump({"folder": folder, **found}, f, indent=1, sort_keys=True)

report = {"folder": folder, "pass": work["pass"], "findings": where, "files": len(paths), "lines": found["lines"]}
weft("msg", "send", "reviewer", "--group", work["group"]["id"], "--group-size", str(work["group"]["size"]), stdin=json.dumps(report))
say(f"reported: {len(paths)} files, {found['lines']} lines, {len(found['keys'])} things that look like keys")
