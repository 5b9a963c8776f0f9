"""Starts when all analysts have reported: merges their findings, recounts a sample by itself, writes and signs the report."""

import base64
import json
import os
import random
import tempfile

from mesh import OUT, SOURCE, say, secret, task_input, vault, weft
from render import chart, markdown

wake = task_input()  # what the trigger gives: the messages of the whole group, and the tasks that sent them
reports = wake["messages"]
number = reports[0]["pass"]
say(f"{len(reports)} analysts have reported")

# A message can be here before its sender's files are: those come into the head when the sender has ended.
for task in wake["tasks"]:
    weft("task", "wait", task)
here = tempfile.mkdtemp()
weft("files", "get", "findings", f"{here}/findings")
found = []
for report in sorted(reports, key=lambda r: r["folder"]):
    with open(f"{here}/{report['findings']}", encoding="utf-8") as f:
        found.append(json.load(f))
files = {path: figures for d in found for path, figures in d["files"].items()}
say(f"the head holds {len(found)} findings about {len(files)} files")

# Nobody but the reviewer has this seed, so no analyst can know which of its files will be counted again.
sample = random.Random(secret("sample-seed")).sample(sorted(files), min(20, len(files)))


def recount(path):
    with open(os.path.join(SOURCE, path), "rb") as f:
        b = f.read()
    if len(b) > 1 << 20 or b"\0" in b[:8192]:
        return 0
    return b.count(b"\n") + (not b.endswith(b"\n") and b != b"")


wrong = [path for path in sample if recount(path) != files[path][1]]
say(f"counted {len(sample)} files again: {len(wrong)} differ")


def most(name, by, n=10):
    return sorted((x for d in found for x in d[name]), key=lambda x: (-x[by], json.dumps(x, sort_keys=True)))[:n]


report = {
    "pass": number,
    "files": len(files),
    "lines": sum(n for _, n in files.values()),
    "folders": {d["folder"]: d["lines"] for d in found},
    "longest_files": most("longest_files", "lines"),
    "longest_functions": most("longest_functions", "lines"),
    "duplicates": most("duplicates", "blocks"),
    "keys": sorted((k for d in found for k in d["keys"]), key=lambda k: (k["path"], k["line"])),
    "sample": {"recounted": len(sample), "differ": wrong},
    "changed": sorted((c for d in found for c in d.get("changed", [])), key=lambda c: c["path"]),
    "added": sorted(p for d in found for p in d.get("added", [])),
    "removed": sorted(p for d in found for p in d.get("removed", [])),
}
body = json.dumps(report, indent=1, sort_keys=True) + "\n"

# Only this agent has a grant for the key, which never leaves Vault.
signature = vault("transit/sign/report-key", {"input": base64.b64encode(body.encode()).decode()})["signature"]

os.makedirs(f"{OUT}/report", exist_ok=True)
for name, text in (("report.json", body), ("report.json.sig", signature + "\n"), ("report.md", markdown(report)), ("chart.svg", chart(report))):
    with open(f"{OUT}/report/{name}", "w", encoding="utf-8") as f:
        f.write(text)
weft("memory", "add", "--kind", "episodic", "--submission-key", "audit-" + os.environ["WEFT_TASK"], "--text",
     f"Audit pass {number}: {report['files']} files, {report['lines']} lines, {len(report['changed'])} changed.")
say(f"report written and signed: {report['files']} files, {report['lines']} lines")
for c in report["changed"]:
    say(f"changed: {c['path']}, {c['lines_before']} → {c['lines']} lines")
