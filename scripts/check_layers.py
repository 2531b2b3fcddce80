#!/usr/bin/env python3
"""Checks every #include and every CMake dependency against the table of lib/ARCHITECTURE.md ("Who may include whom").

A folder may include itself, what its row names, and what these may include in turn. Tests may also include
tests/support and any folder of a lower level. Includes are written from the root of lib/ or of the repository.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
KEYWORDS = {"SOURCES", "CUDA_SOURCES", "DEPENDS", "PRIVATE", "TESTS", "TEST_DEPENDS"}


def read_table():
    """{folder: (level, {folders})} from rows such as | 3 | `comm` | groups, collectives | `tensor` |"""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|[^|]*\|([^|]*)\|$", (ROOT / "lib/ARCHITECTURE.md").read_text(), re.M)
    return {folder: (int(level), set(re.findall(r"`(\w+)`", names))) for level, folder, names in rows}


def closure(table, folder):
    below = table[folder][1]
    return {folder}.union(*(closure(table, other) for other in below))


def check_table(table):
    if "train" not in table:
        yield "lib/ARCHITECTURE.md: the dependency table was not found"
    for folder, (level, below) in table.items():
        for other in below:
            if other not in table or table[other][0] >= level:
                yield f"lib/ARCHITECTURE.md: `{folder}` (level {level}) may only depend on rows of lower levels, not on `{other}`"
    for lists in (ROOT / "lib").glob("*/CMakeLists.txt"):
        if lists.parent.name not in table:
            yield f"{lists.relative_to(ROOT)}:1: lib/{lists.parent.name} has no row in the table of lib/ARCHITECTURE.md"


def check_includes(table, folder, directory):
    allowed = closure(table, folder)
    lower = {other for other, (level, _) in table.items() if level < table[folder][0]}
    for path in sorted(p for p in directory.rglob("*") if p.suffix in {".h", ".cpp", ".cuh", ".cu"}):
        is_test = re.search(r"(^|_)test(_|$)", path.stem)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include "([^"]+)"', line)
            if not include:
                continue
            target = include[1].split("/")[0]
            if target in allowed or is_test and (target in lower or target == "tests"):
                continue
            names = ", ".join(sorted(allowed - {folder})) or "nothing"
            yield f'{path.relative_to(ROOT)}:{number}: {folder} includes "{include[1]}", but may include {names}; see lib/ARCHITECTURE.md'


def check_cmake(table, folder, directory):
    keyword, linked = "", set()
    text = re.sub(r"#.*", "", (directory / "CMakeLists.txt").read_text())
    for word in re.findall(r"[\w:]+", text):
        keyword = word if word in KEYWORDS else keyword
        if keyword in {"DEPENDS", "PRIVATE"} and word.startswith("longhaul::"):
            linked.add(re.sub(r"^longhaul::(kernel)_\w+", r"longhaul::\1s", word).split("::")[1])
    row = closure(table, folder) - {folder}
    used = set().union(*(closure(table, other) for other in linked & set(table)))
    if row != used:
        yield (f"lib/{folder}/CMakeLists.txt:1: DEPENDS reaches {sorted(used)}, but the row of `{folder}` in "
               f"lib/ARCHITECTURE.md reaches {sorted(row)}; make them equal")


def main():
    table = read_table()
    problems = list(check_table(table))
    for folder in table if not problems else ():
        directory = next((d for d in (ROOT / "lib" / folder, ROOT / folder) if d.is_dir()), None)
        if directory is None:
            problems.append(f"lib/ARCHITECTURE.md: `{folder}` has a row, but there is no such folder")
            continue
        problems += check_includes(table, folder, directory)
        if directory.parent.name == "lib":
            problems += check_cmake(table, folder, directory)
    print("\n".join(problems) or f"layers: {len(table)} folders keep to the table of lib/ARCHITECTURE.md")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
