"""Says how large files and functions are; a yardstick, not a gate: `python tests/size_report.py`.

Aims: files of 200 lines in the median and 500 at most, nine of ten functions within 45 lines.
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("packages", "kernels", "csrc", "tests", "docs")
SUFFIXES = {".py", ".cpp", ".hpp", ".inc"}


def function_lengths(file: Path) -> Iterator[tuple[int, str]]:
    """Yield lines and name of each function of a Python file."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{file.relative_to(ROOT)}:{node.name}"


def report() -> str:
    """Return the report, a line for each folder and the largest few of all."""
    lines, largest, longest = [], [], []
    for folder in FOLDERS:
        files = [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in SUFFIXES and "_build" not in path.parts
        ]
        sizes = [
            (len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(ROOT)))
            for path in files
        ]
        functions = [one for path in files if path.suffix == ".py" for one in function_lengths(path)]
        largest += sizes
        longest += functions
        median = statistics.median([size for size, _ in sizes])
        over = sum(size > 500 for size, _ in sizes)
        lines.append(f"{folder}: {len(files)} files, {median:.0f} lines in the median, {over} over 500")
        if functions:
            nine_of_ten = sorted(length for length, _ in functions)[int(len(functions) * 0.9)]
            lines[-1] += f"; nine of ten functions within {nine_of_ten} lines"
    lines += [f"large file: {name}, {size} lines" for size, name in sorted(largest)[-3:]]
    lines += [f"long function: {name}, {length} lines" for length, name in sorted(longest)[-3:]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
