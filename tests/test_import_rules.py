"""The layers of dtk: imports go only downward, inside function bodies too."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the top down. A module may import from lower rows only, and from its own component.
LAYERS: list[set[str]] = [
    {"__main__"},
    {"cli"},
    {"repro"},
    {"scout", "h2", "fp4", "zeropp"},
    {"training"},
    {"pipeline", "models", "cluster"},
    {"costmodel"},
    {"workload", "hardware", "timeline", "simulation"},
    {"units", "configuration"},
    {"errors", "_native"},
]
RANKS = {component: -row for row, components in enumerate(LAYERS) for component in components}

DTK_FILES = sorted((ROOT / "packages" / "dtk").rglob("*.py"))
KERNEL_FILES = sorted((ROOT / "kernels" / "dtk_kernels").rglob("*.py"))


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and absolute dotted name of everything that `source` imports, anywhere in it."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node.func) in {"import_module", "__import__"}:
            constants = [argument for argument in node.args if isinstance(argument, ast.Constant)]
            yield from ((node.lineno, str(constant.value)) for constant in constants[:1])


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return one line for each import of `module` that goes sideways or upward."""
    found = []
    parts = module.split(".")
    own = parts[1] if len(parts) > 1 else ""
    for line, name in imports(source, module, is_package=is_package):
        root, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if root != "dtk":
            continue
        if parts[0] == "dtk_kernels":
            found.append(f"{module}:{line} imports {name}; the kernel layer knows nothing of dtk")
        elif target not in {own, "", "__version__"} and (
            target not in RANKS or RANKS[target] >= RANKS.get(own, -99)
        ):
            found.append(f"{module}:{line} imports {name}, which is not below {own or 'dtk'}")
    return found


def module_name(file: Path, top: Path) -> tuple[str, bool]:
    parts = list(file.relative_to(top).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if is_package else parts), is_package


@pytest.mark.parametrize("file", [*DTK_FILES, *KERNEL_FILES], ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_go_only_downward(file: Path) -> None:
    top = ROOT / ("packages" if "packages" in file.parts else "kernels")
    module, is_package = module_name(file, top)
    assert violations(file.read_text(), module, is_package=is_package) == []


def test_every_component_has_a_layer() -> None:
    folder = ROOT / "packages" / "dtk"
    components = {
        path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert components - {"__init__"} <= set(RANKS)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dtk.scout.engine", "from dtk.h2 import planner"),
        ("dtk.scout.engine", "import dtk.fp4.linear"),
        ("dtk.scout.engine", "from dtk import repro"),
        ("dtk.scout.engine", "from ..zeropp import plan"),
        ("dtk.models.load", "def f():\n    from dtk.training import loop"),
        ("dtk.models.load", "import importlib\nimportlib.import_module('dtk.cli.main')"),
        ("dtk.models.load", "from dtk.pipeline import text"),
        ("dtk.repro.runner", "from dtk.cli import output"),
        ("dtk.errors", "from dtk.units import Bytes"),
        ("dtk.scout.engine", "from dtk.unheard_of import thing"),
        ("dtk_kernels.attention", "if True:\n    from dtk.errors import InputError"),
    ],
)
def test_the_rule_catches(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dtk.scout.engine", "from dtk.scout import cache\nfrom . import cache\nfrom .policies import quest"),
        (
            "dtk.scout.engine",
            "import dtk_kernels.attention\nfrom dtk.models import load\nfrom dtk.errors import DtkError",
        ),
        ("dtk.cli.repro", "from dtk.repro import runner\nfrom dtk.cli.output import Output"),
        ("dtk.cli.main", "import dtk\nfrom dtk import __version__"),
        ("dtk_kernels.attention", "from dtk_kernels import kv\nfrom . import score"),
    ],
)
def test_the_rule_allows(module: str, source: str) -> None:
    assert violations(source, module) == []
