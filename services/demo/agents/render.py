"""The report for people: as Markdown, and as a chart."""

import html


def markdown(report):
    sample = report["sample"]
    out = [f"# Audit, pass {report['pass']}\n\n{report['files']} files, {report['lines']} lines. "
           f"{sample['recounted']} files were counted again, {len(sample['differ'])} differ.\n"]
    sections = [
        ("Changed since the last pass", "changed", ("path", "lines_before", "lines")),
        ("Longest files", "longest_files", ("path", "lines")),
        ("Longest functions", "longest_functions", ("path", "name", "line", "lines")),
        ("Repeated blocks", "duplicates", ("a", "b", "blocks")),
        ("What looks like a committed key", "keys", ("path", "line", "what", "fingerprint")),
    ]
    for title, name, columns in sections:
        if report[name]:
            out.append(f"## {title}\n\n" + table(report[name], columns))
    return "\n".join(out)


def table(rows, columns):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[c]).replace("|", "\\|") for c in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def chart(report):
    """Lines by folder as bars."""
    folders = sorted(report["folders"].items(), key=lambda e: (-e[1], e[0]))
    longest = max(report["folders"].values()) or 1
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{44 + 28 * len(folders)}" font-family="sans-serif" font-size="13">',
           '<text x="10" y="20" font-weight="bold">Lines by top folder</text>']
    for i, (name, n) in enumerate(folders):
        y, width = 36 + 28 * i, max(1, 400 * n // longest)
        out.append(f'<text x="140" y="{y + 15}" text-anchor="end">{html.escape(name[:18])}</text>'
                   f'<rect x="150" y="{y}" width="{width}" height="20" fill="#3b6ea5"/>'
                   f'<text x="{156 + width}" y="{y + 15}">{n}</text>')
    return "\n".join(out + ["</svg>", ""])
