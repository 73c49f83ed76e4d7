"""The house stands: imports go down, adapters have one door, SQL lives in sql/, all has its place."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "server" / "relevo"

# The house from the roof down. A room (a module, or a folder with all that is in it) may use itself and the floors
# below it, neither one above nor another room of its own floor. What is said of each room in the README's map is said
# here as an order.
HOUSE = """
    __main__                                       the command
    cli                                            its subcommands, without SQL
    http  __init__  errors                         the HTTP face with its pages, without SQL; what apps import
    app  aio  config_file  verbs                   assembly, which alone names adapters; relevo.yaml; each caller's verbs
    access  cycles                                 who may call over HTTP; one duty each: step(run)
    operators  delivery  archive                   what operators do; how a push is sent; how a month leaves
    runtime  sources  providers  stores  sandbox   how a cycle runs; doors to the world; the local services, the demo
    database                                       the way to PostgreSQL
    embedded  config  client                       the embedded PostgreSQL; settings; the app's verbs
    core                                           words, plug points, small tools
    facts                                          what is true of each push service: providers/**/facts.py
"""
# What the sandbox has of a push service lies in providers/*/sandbox/, and stands on the sandbox's floor.
MOST_FLOORS = 11
FLOORS = [re.split(r"\s{3,}", line.strip())[0].split() for line in HOUSE.strip().splitlines()]
HEIGHT = {room: -depth for depth, floor in enumerate(FLOORS) for room in floor}
ADAPTERS = {"sources", "providers", "stores"}
SHARED = {"sources.merging"}  # stands among adapters and is none: what items say, joined
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}

# In capitals the first word tells; in small letters, and where prose has the word too, it takes one or two more.
SQL = re.compile(
    r"\s*(?:(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER)\s|(?:NOTIFY|LISTEN)\s+\S+\s*(?:[,;]|\Z)"
    r"|select\s|insert\s+into\s|update\s+\S+\s+(?:\w+\s+)?set\s|delete\s+from\s|with\s+\S+\s+as\s"
    r"|(?:create|alter)\s+(?:or\s+replace\s+)?(?:table|index|schema|view|function|role|database|type)\s)"
)

TOP_LEVEL = {
    ".ci",
    ".env.example",
    ".github",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "scripts",
    "server",
    "sql",
    "tests",
}


Modules = list[tuple[Path, ast.Module]]


@pytest.fixture(scope="module")
def modules() -> Modules:
    """Every file of the package below server/relevo, parsed once for all tests here."""
    found = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE), ast.parse(path.read_text(encoding="utf-8"))) for path in found]


def room_of(path: Path) -> str:
    """Return what stands on a floor: the module, or for a file in a folder the folder; facts stand apart."""
    return module_name(path).split(".")[0]


def imports(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and module of every import from the package, wherever in the file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{origin(path, node)}.{alias.name}" for alias in node.names]
        else:
            continue
        for package, *rest in (name.split(".") for name in names):
            if package == "relevo":
                yield node.lineno, placed(imported_module(rest))


def origin(path: Path, node: ast.ImportFrom) -> str:
    """Return the absolute name of what an import takes from."""
    if node.level == 0:
        return node.module or ""
    parents = ["relevo", *path.parent.parts]
    above = parents[: len(parents) - node.level + 1]
    return ".".join([*above, *(node.module or "").split(".")]).rstrip(".")


def imported_module(parts: list[str]) -> str:
    """Return the module that a dotted name below relevo leads to, however deep its folder; a folder is its own module."""
    for count in range(len(parts), 0, -1):
        found = PACKAGE.joinpath(*parts[:count])
        if (found / "__init__.py").is_file() or found.with_suffix(".py").is_file():
            return ".".join(parts[:count])
    return "__init__"


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package, as `imports` yields it."""
    parts = path.with_suffix("").parts
    return placed(".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__")


def placed(module: str) -> str:
    """Return the name of a module by its floor: the folder of a push service has its facts, and what the sandbox has of it."""
    parts = module.split(".")
    if parts[0] == "providers" and parts[-1] == "facts":
        return ".".join(("facts", *parts[1:-1]))
    return (
        ".".join(("sandbox", *parts[:2], *parts[3:]))
        if parts[0] == "providers" and parts[2:3] == ["sandbox"]
        else module
    )


def complaints_about_imports(path: Path, tree: ast.Module) -> Iterator[str]:
    """Name the imports that go up or aside, or that name an adapter outside app/."""
    here = room_of(path)
    found = {(line, name.split(".")[0], name in SHARED) for line, name in imports(path, tree)}
    for line, there, shared in sorted(found):
        if here != there and {here, there} <= HEIGHT.keys() and HEIGHT[there] >= HEIGHT[here]:
            yield f"{path}:{line}: {here} must not import from {there}, which is not on a floor below it"
        if there in ADAPTERS and not shared and here not in {there, "app"}:
            yield f"{path}:{line}: only assembly names adapters; {here} gets {there} through a port"


def complaints_about_environment(path: Path, tree: ast.Module) -> Iterator[str]:
    """Name every look at the environment outside config; embedded hands its own on to the programs it starts."""
    if room_of(path) in ("config", "embedded"):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            taken = {node.attr} if isinstance(node.value, ast.Name) and node.value.id == "os" else set()
        elif isinstance(node, ast.ImportFrom):
            taken = {alias.name for alias in node.names} if node.module == "os" else set()
        else:
            continue
        for name in sorted(taken & ENVIRONMENT):
            yield f"{path}:{node.lineno}: os.{name} belongs in config, which alone reads the environment"


def complaints_about_sql(path: Path, tree: ast.Module) -> Iterator[str]:
    """Name every string that starts like a statement; docstrings may speak about them."""
    for line, text in strings(tree):
        if SQL.match(text):
            yield f"{path}:{line}: SQL lives in sql/queries, not in Python: {text.strip()[:40]!r}"


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string but docstrings; the gaps of f-strings are filled with a letter."""
    passed_by = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed_by |= {id(part) for part in node.values}
            parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and id(node) not in passed_by:
            text = node.value.decode(errors="replace") if isinstance(node.value, bytes) else node.value
            yield node.lineno, str(text)


def test_every_module_stands_on_a_floor(modules: Modules) -> None:
    """A new module is placed on a floor before anything else, and the floors stay few."""
    homeless = sorted({room_of(path) for path, _ in modules} - HEIGHT.keys())
    assert len(FLOORS) <= MOST_FLOORS
    assert not homeless, f"{', '.join(homeless)}: place it on a floor of HOUSE, as high as its imports need"


def needs_of(modules: Modules) -> dict[str, set[str]]:
    """Return what each module of the package imports from it, in folders of any depth."""
    return {(here := module_name(path)): {there for _, there in imports(path, tree)} - {here} for path, tree in modules}


def test_no_module_imports_itself_through_another(modules: Modules) -> None:
    """No import leads in a circle, in folders of any depth; imports for types alone count."""
    needs = needs_of(modules)
    assert len(needs) > 300
    assert any(name.count(".") > 1 for name in needs), "folders in folders are seen"
    assert set().union(*needs.values()) <= needs.keys(), "every import leads to a module"
    assert not list(circles(needs))


def test_no_folder_imports_itself_through_its_neighbours(modules: Modules) -> None:
    """Inside each folder the modules and folders that lie in it stand in an order, too: none needs itself by way of another."""
    needs = needs_of(modules)
    assert not [f"{folder}: {each}" for folder in folders(needs) for each in circles(inside(folder, needs))]


def folders(needs: dict[str, set[str]]) -> set[str]:
    """Return the folders of the package, the package itself as the empty name."""
    return {""} | {name.rpartition(".")[0] for name in needs}


def inside(folder: str, needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return what each entry of a folder, a module or a folder with all that is in it, imports from the others."""
    found: dict[str, set[str]] = {}
    for name, wanted in needs.items():
        if (here := entry_of(folder, name)) is not None:
            found.setdefault(here, set()).update(
                there for each in wanted if (there := entry_of(folder, each)) not in (None, here)
            )
    return found


def entry_of(folder: str, name: str) -> str | None:
    """Return the entry of a folder that a module lies in; None if it lies elsewhere or is the folder itself."""
    below = f"{folder}." if folder else ""
    return name.removeprefix(below).partition(".")[0] if name.startswith(below) else None


def test_an_entry_of_a_folder_is_found() -> None:
    """What lies in folders of a folder counts as that folder, and what lies elsewhere does not count."""
    needs = {"a.b.c": {"a.d", "e"}, "a.d": {"a.b.f"}, "a.b.f": set(), "e": {"a.d"}}
    assert inside("a", needs) == {"b": {"d"}, "d": {"b"}}
    assert list(circles(inside("a", needs))) == ["b", "d"]
    assert list(circles(inside("", needs))) == ["a", "e"]


def circles(needs: dict[str, set[str]]) -> Iterator[str]:
    """Name the modules that are left when those that need nobody left, or that nobody left needs, are taken away."""
    left = dict(needs)
    while ends := [name for name, wanted in left.items() if not (wanted - {name}) & left.keys()]:
        left = {name: wanted for name, wanted in left.items() if name not in ends}
    while starts := left.keys() - {there for name, wanted in left.items() for there in wanted - {name}}:
        left = {name: wanted for name, wanted in left.items() if name not in starts}
    yield from sorted(left)


def test_a_circle_is_found() -> None:
    """Two modules that need each other are named, and neither those that need them nor those that they need."""
    assert list(circles({"a": {"b"}, "b": {"a", "d"}, "c": {"a"}, "d": set()})) == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from relevo.cycles.dispatch.lanes import Lanes", "cycles.dispatch.lanes"),
        ("from relevo.cycles import dispatch", "cycles.dispatch"),
        ("from relevo.cycles.dispatch import cycle", "cycles.dispatch"),
        ("import relevo.http.dashboard.page", "http.dashboard.page"),
        ("from .services import exchange", "sandbox.services.exchange"),
        ("if TYPE_CHECKING:\n    from relevo.sandbox.services.running import Services", "sandbox.services.running"),
        ("from relevo import Event", "__init__"),
    ],
)
def test_an_import_is_followed_into_nested_folders(source: str, module: str) -> None:
    """An import leads to the module that it names, however deep its folder, and to a folder's own `__init__`."""
    assert [name for _, name in imports(Path("sandbox/state.py"), ast.parse(source))] == [module]


def test_imports_go_down(modules: Modules) -> None:
    """No module imports from another room of its floor or above it, and only assembly names adapters."""
    complaints = [line for path, tree in modules for line in complaints_about_imports(path, tree)]
    assert not complaints, "\n".join(complaints)


def test_only_config_reads_the_environment(modules: Modules) -> None:
    """Settings are read in one place."""
    complaints = [line for path, tree in modules for line in complaints_about_environment(path, tree)]
    assert not complaints, "\n".join(complaints)


def test_no_sql_in_python(modules: Modules) -> None:
    """Statements live in sql/, where they have a name and a sentence."""
    complaints = [line for path, tree in modules for line in complaints_about_sql(path, tree)]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("database/pool.py", "from relevo.cli import main", "must not import from cli"),
        ("database/pool.py", "def f():\n    from relevo.runtime import runner", "must not import from runtime"),
        ("database/pool.py", "from .. import app", "must not import from app"),
        ("database/pool.py", "from relevo import Event", "must not import from __init__"),
        ("runtime/runs.py", "from ..cycles.reaper import step", "must not import from cycles"),
        ("archive/retire.py", "from relevo.delivery import claims", "must not import from delivery"),
        ("cycles/ingest.py", "import relevo.sources.sample", "only assembly names adapters"),
        ("cli.py", "from relevo.providers import expo", "only assembly names adapters"),
        ("cycles/receipt.py", "from relevo.providers import expo", "only assembly names adapters"),
        ("database/pool.py", "import os\nos.environ['X']", "os.environ belongs in config"),
        ("database/pool.py", "from os import getenv", "os.getenv belongs in config"),
        ("database/pool.py", "run('SELECT 1')", "SQL lives in sql/queries"),
        ("database/pool.py", "run(f'''\n  update {table} set x = 1''')", "SQL lives in sql/queries"),
        ("database/pool.py", "run('LISTEN relevo;')", "SQL lives in sql/queries"),
        ("database/pool.py", "run(b'delete from relevo.runs')", "SQL lives in sql/queries"),
        ("providers/expo/facts.py", "from relevo.core import model", "facts must not import from core"),
        (
            "providers/fcm/sandbox/service.py",
            "from relevo.operators import health",
            "must not import from operators",
        ),
        (
            "providers/fcm/provider.py",
            "from relevo.providers.fcm.sandbox import tokens",
            "must not import from sandbox",
        ),
        (
            "providers/fcm/sandbox/service.py",
            "from relevo.sandbox import state\nfrom relevo.providers.fcm import facts",
            "",
        ),
        ("core/known_services.py", "from relevo.providers.expo import facts", ""),
        ("cycles/ingest.py", "from relevo.sources.merging import merge", ""),
        ("cli.py", "from relevo import app\nfrom relevo.cycles import reaper", ""),
        ("app/push_services.py", "from relevo.providers.expo.provider import Expo", ""),
        ("providers/expo.py", "from . import chunks\nfrom relevo.core.ports import PushProvider", ""),
        ("runtime/wakeups.py", '"""LISTEN on the direct DSN."""\nlog("LISTEN does not work: ", "Select a cycle.")', ""),
    ],
)
def test_the_rules_bite(path: str, source: str, complaint: str) -> None:
    """Each rule finds its offence, and leaves good code in peace."""
    rules = (complaints_about_imports, complaints_about_environment, complaints_about_sql)
    found = [line for rule in rules for line in rule(Path(path), ast.parse(source))]
    assert [complaint in line for line in found] == ([True] if complaint else []), found


def test_only_known_entries_at_the_top() -> None:
    """The first thing a newcomer sees is short; a new entry at the top is decided on here."""
    unknown = sorted(top_level() - TOP_LEVEL)
    assert not unknown, f"{', '.join(unknown)}: move it into a folder, or add it to TOP_LEVEL on purpose"


def top_level() -> set[str]:
    """Return the first part of every tracked path; in a copy without its history, what is there."""
    git = shutil.which("git")
    if not git or not (ROOT / ".git").exists():
        ignored = (ROOT / ".gitignore").read_text().replace("/", "").split()
        return {path.name for path in ROOT.iterdir()} - set(ignored)
    command = [git, "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name.split("/")[0] for name in listed.split("\0") if name}


def test_every_test_says_what_must_hold() -> None:
    """Each test carries a docstring."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for place in ast.parse(path.read_text(encoding="utf-8")).body
        for node in (place, *(place.body if isinstance(place, ast.ClassDef) else ()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent, "say in a docstring what must hold:\n" + "\n".join(silent)


SCREEN, PARAGRAPH, LONGEST, LONGEST_FILE = 50, 3, 60, 500  # lines


def complaints_about_lengths(path: Path, text: str) -> Iterator[str]:
    """Name a file, and functions in it, that are longer than a reader can hold."""
    if (lines := text.count("\n")) > LONGEST_FILE:
        yield f"{path} has {lines} lines: give a part of it a file of its own"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > LONGEST:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines: make steps of it"


def test_files_and_functions_are_short() -> None:
    """No file of the package or the scripts has more than 500 lines, and no function more than 60."""
    files = [path for folder in ("server/relevo", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))]
    long = [line for path in files for line in complaints_about_lengths(path, path.read_text(encoding="utf-8"))]
    assert len(files) > 200
    assert not long, "\n".join(long)


def complaints_about_statements(text: str) -> Iterator[str]:
    """Name the blocks of a queries file that are not a name, a sentence and a statement, in that order."""
    head, *blocks = re.split(r"^-- name:", text, flags=re.MULTILINE)
    if strip_comments(head):
        yield "the file starts with SQL that has no `-- name:` line"
    names = [block.split("\n")[0].strip() for block in blocks]
    for name, block in zip(names, blocks, strict=True):
        if not re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name):
            yield f"{name or '(empty)'}: a name is verb_object, as in claim_due"
        if names.count(name) > 1:
            yield f"{name}: this name is given twice"
        sentence = re.match(r".*\n((?:-- .*\n)*)", block)
        if not sentence or not re.match(r"-- [A-Z](?:.|\n)*\.\n\Z", sentence[1]):
            yield f"{name}: one sentence in comments must follow the name, from a capital to a full stop"
        if not strip_comments(block.partition("\n")[2]):
            yield f"{name}: there is no statement below it"
        if length_of(block) > LONGEST:
            yield f"{name}: it has more than {LONGEST} lines; make it a function whose steps are statements"
        elif length_of(block) > SCREEN and (not sentence or sentence[1].count("\n") < PARAGRAPH):
            yield f"{name}: it is longer than a screen, so a paragraph above it says how it goes"


def length_of(statement: str) -> int:
    """Return how many lines of SQL there are, comments and empty lines left out."""
    return sum(1 for line in strip_comments(statement).splitlines() if line.strip())


def strip_comments(text: str) -> str:
    """Return what is left of SQL without its comment lines."""
    return re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE).strip()


def test_every_statement_has_a_name_and_a_sentence() -> None:
    """In sql/queries each block is `-- name: verb_object`, one sentence, the statement."""
    files = sorted((ROOT / "sql" / "queries").glob("*.sql"))
    assert files, "sql/queries holds no statements"
    complaints = [
        f"{path.name}: {line}"
        for path in files
        for line in complaints_about_statements(path.read_text(encoding="utf-8"))
    ]
    assert not complaints, "\n".join(complaints)


def test_statements_of_functions_are_short() -> None:
    """In sql/functions, too, no statement has more lines than a reader can hold."""
    files = sorted((ROOT / "sql" / "functions").rglob("*.sql"))
    assert files, "sql/functions holds no functions"
    long = [
        f"{path.name}: a statement of {length_of(each)} lines"
        for path in files
        for each in re.split(r";[ ]*(?:--.*)?$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if length_of(each) > LONGEST
    ]
    assert not long, "make steps of them:\n" + "\n".join(long)


def test_text_means_the_same_in_every_session() -> None:
    """Text with a backslash is written as E'…' where it is parsed when it runs: a session may lack standard_conforming_strings."""
    queries = {path: path.read_text(encoding="utf-8") for path in (ROOT / "sql" / "queries").glob("*.sql")}
    bodies = {
        path: "".join(re.findall(r"\$\$.*?\$\$", path.read_text(encoding="utf-8"), re.DOTALL))
        for path in (ROOT / "sql" / "functions").rglob("*.sql")
    }
    plain = [
        f"{path.name}: {text}"
        for path, body in (queries | bodies).items()
        for mark, text in re.findall(r"(\bE)?('(?:[^']|'')*')", re.sub(r"--[^\n]*", "", body))
        if "\\" in text and not mark
    ]
    assert not plain, "\n".join(plain)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("select 1;\n-- name: ask_one\n-- Asks.\nselect 1;\n", "starts with SQL"),
        ("-- name: claim\n-- Claims.\nselect 1;\n", "verb_object"),
        ("-- name: ask_one\nselect 1;\n", "one sentence"),
        ("-- name: ask_one\n-- asks for one\nselect 1;\n", "one sentence"),
        ("-- name: ask_one\n-- Asks for one.\n\n-- name: ask_two\n-- Asks.\nselect 2;\n", "no statement"),
        ("-- name: ask_one\n-- Asks.\nselect 1;\n-- name: ask_two\n\n-- Asks.\nselect 2;\n", "one sentence"),
        ("-- A word ahead.\n\n-- name: ask_one\n-- Asks,\n-- in two lines.\nselect 1; -- why\n", ""),
        ("-- name: ask_much\n-- Asks.\n" + "select 1\n" * 55, "longer than a screen"),
        ("-- name: ask_much\n-- Asks.\n-- First one.\n-- Then others.\n" + "select 1\n" * 55, ""),
        ("-- name: ask_much\n-- Asks.\n-- First one.\n-- Then others.\n" + "select 1\n" * 70, "more than 60 lines"),
    ],
)
def test_the_rule_for_statements_bites(text: str, complaint: str) -> None:
    """Each fault of form is found, and good form passes."""
    found = list(complaints_about_statements(text))
    assert [complaint in line for line in found] == ([True] if complaint else []), found


def test_functions_leave_the_planner_a_join() -> None:
    """A function that turns nested loops off turns hash joins on: workers' transactions turn these off, and then every row is compared with every other."""
    files = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "sql" / "functions").rglob("*.sql"))]
    without_loops = [text for text in files if "set enable_nestloop = off" in text]
    assert without_loops
    assert all("set enable_hashjoin = on" in text for text in without_loops)
