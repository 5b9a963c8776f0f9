"""The code base as it lies in the workspace: its top folders, and what is in each."""

import os

from mesh import SOURCE

TOP = "."  # the name of what lies beside the folders, and in hidden ones


def folders():
    """The top folders that hold a file, sorted; TOP last."""
    names = sorted(e.name for e in os.scandir(SOURCE) if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    return [f for f in names + [TOP] if files(f)]


def files(folder):
    """Every regular file of a top folder, by its path below the source, sorted."""
    if folder != TOP:
        return sorted(below(folder))
    here = list(os.scandir(SOURCE))
    found = [e.name for e in here if e.is_file(follow_symlinks=False)]
    for hidden in (e.name for e in here if e.is_dir(follow_symlinks=False) and e.name.startswith(".")):
        found += below(hidden)
    return sorted(found)


def below(folder):
    for at, _, names in os.walk(os.path.join(SOURCE, folder)):
        for name in names:
            path = os.path.join(at, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, SOURCE)
