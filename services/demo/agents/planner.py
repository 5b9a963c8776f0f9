"""Reads the tree and fans out one analyst task per top folder."""

import json
import os

from mesh import files, folders, say, task_input, weft

plan = task_input()
tops = [f for f in folders() if files(f)]
group = f"audit-{os.environ['WEFT_TASK']}"
say(f"{sum(len(files(f)) for f in tops)} files in {len(tops)} folders: one analyst each")
for i, folder in enumerate(tops):
    work = {"folder": folder, "pass": plan["pass"], "group": {"id": group, "size": len(tops)},
            "misbehave": plan.get("misbehave", False) and i == 0, "slow": plan.get("slow", 0)}
    weft("run", "analyst", "--detach", "--key", f"{group}-{i}", "--input", "-", "--label", f"folder={folder}", stdin=json.dumps(work))
    say(f"  analyst for {folder} submitted")
