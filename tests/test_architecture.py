"""The rooms of the library: who may import whom, and how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "srpfl"
LONGEST = 400  # lines

# What a room must not import; "*" is every room but itself and the foundations.
ABOVE = ("engine", "loop", "runs", "report", "cli", "flower")
FOUNDATIONS = ("core", "errors")
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "errors": ("*",),
    "core": ("*",),
    "data": ABOVE,
    "task": ABOVE,
    "clock": ABOVE,
    "participation": ABOVE,
    "algorithms": ABOVE,
    "models": ABOVE,
    "engine": ("loop", "runs", "report", "cli", "flower", "algorithms"),
    "runs": ("engine", "loop", "cli", "flower"),
    "studies": ("cli",),
    "reproduce": ("cli",),
}


def imports(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Every import of a module, inside of functions too, but not those for type checkers alone:
    the module, and the names taken from it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from imports(other)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are written out in full"
            yield str(node.module), [alias.name for alias in node.names]
        else:
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                yield beginning(node.args[0]), ["*"]
            yield from imports(node)


def beginning(name: ast.expr) -> str:
    """What is known of a name that is put together as the program runs."""
    first = name.values[0] if isinstance(name, ast.JoinedStr) else name
    return first.value if isinstance(first, ast.Constant) else ""


def graph(source: Path) -> dict[str, set[str]]:
    """The modules of a package, and which of them each imports. What is taken from a package by
    the name of a module in it is that module; the packages around it are imported with it."""
    files = {
        ".".join(["srpfl", *file.relative_to(source).with_suffix("").parts]).removesuffix(
            ".__init__"
        ): file
        for file in source.rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        found[name] = set()
        for module, names in imports(ast.parse(file.read_text())):
            if names == ["*"] and module.startswith("srpfl."):  # any that begins so
                found[name] |= {other for other in files if other.startswith(module)}
            if module not in files:
                continue
            inner = {f"{module}.{each}" for each in names} & files.keys()
            rest = not names or len(inner) < len(names)  # something of the package's own
            for taken in inner | ({module} if rest else set()):
                found[name] |= {taken} | packages(taken) - packages(name)
        found[name].discard(name)
    return found


def packages(module: str) -> set[str]:
    """The packages that a module is in: Python imports them before it."""
    parts = module.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def a_cycle(modules: dict[str, set[str]]) -> list[str] | None:
    """Some modules that import each other in a ring, if there are any."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        for other in sorted(modules[name]):
            if ring := walk(other, [*path, name]):
                return ring
        done.add(name)
        return None

    return next(filter(None, (walk(name, []) for name in sorted(modules))), None)


def room(module: str) -> str:
    """The choice that a module belongs to; the package itself has none."""
    return f"{module}.".split(".")[1]


@pytest.fixture(scope="module")
def modules() -> dict[str, set[str]]:
    return graph(SOURCE)


def test_no_module_comes_back_to_itself_by_its_imports(modules: dict[str, set[str]]) -> None:
    ring = a_cycle(modules)
    assert ring is None, " -> ".join(ring)


def test_a_cycle_is_found_wherever_it_hides(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def late():\n    from srpfl import two\n")
    (tmp_path / "two.py").write_text("try:\n    import srpfl.three\nfinally:\n    pass\n")
    (tmp_path / "three.py").write_text("from typing import TYPE_CHECKING\nimport srpfl.one\n")
    (tmp_path / "__init__.py").write_text("")
    assert a_cycle(graph(tmp_path)) == ["srpfl.one", "srpfl.two", "srpfl.three", "srpfl.one"]
    (tmp_path / "three.py").write_text("if TYPE_CHECKING:\n    import srpfl.one\n")
    assert a_cycle(graph(tmp_path)) is None
    (tmp_path / "three.py").write_text("importlib.import_module(f'srpfl.{name}')\n")
    assert a_cycle(graph(tmp_path)) is not None


def test_no_room_reaches_back(modules: dict[str, set[str]]) -> None:
    wrong = []
    for module, others in modules.items():
        mine = room(module)
        barred = FORBIDDEN.get(mine, ())
        for other in others:
            theirs = room(other)
            everywhere = "*" in barred and theirs not in (mine, *FOUNDATIONS)
            to_the_command = theirs == "cli" and mine not in ("cli", "__main__")
            if everywhere or theirs in barred or to_the_command:
                wrong.append(f"{module} imports {other}")
    assert not wrong, "; ".join(sorted(wrong))


def test_a_file_is_one_idea() -> None:
    lengths = {
        str(file.relative_to(SOURCE)): len(file.read_text().splitlines())
        for file in SOURCE.rglob("*")
        if file.suffix in (".py", ".js", ".css", ".html")
    }
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST}
    assert not too_long


def test_the_top_level_shows_the_choices_and_little_else() -> None:
    entries = {
        entry.name
        for entry in SOURCE.iterdir()
        if entry.name != "__pycache__" and not (entry / "__init__.py").exists()
    }
    assert entries <= {"__init__.py", "__main__.py", "errors.py", "py.typed"}
