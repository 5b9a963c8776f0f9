"""Reads the tree and fans out one analyst task per top folder."""

import json
import os

from mesh import say, task_input, weft
from tree import files, folders

SLOW = 4  # so many analysts take their time where that is asked for; more don't run at once on a small node

plan = task_input()
tops = folders()
group = {"id": "audit-" + os.environ["WEFT_TASK"], "size": len(tops)}  # the reviewer starts when so many have reported
say(f"{sum(len(files(f)) for f in tops)} files in {len(tops)} folders: one analyst for each")
for i, folder in enumerate(tops):
    work = {"folder": folder, "pass": plan["pass"], "group": group, "slow": plan["slow"] if i < SLOW else 0}
    if i == 0:
        work["misbehave"] = plan.get("misbehave")
    weft("run", "analyst", "--detach", "--key", f"{group['id']}-{i}", "--label", f"folder={folder}", "--input", "-", stdin=json.dumps(work))
    say(f"submitted the analyst for {folder}")
