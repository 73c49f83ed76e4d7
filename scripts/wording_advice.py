"""Names commit subjects and added lines that are hard to read. `make check` prints this as advice: it never fails.

With an argument it reads another range of commits: `scripts/wording_advice.py main~20..main`. With `--tree` it reads
whole files instead, and names all that it finds: `scripts/wording_advice.py --tree server/relevo sql`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 30
SHOWN = 40
"""How many lines are printed; the last line counts the others."""
_CLAUSE = re.compile(r"(What|Who|Whoever|Let|Have|Say|Tell)\b(?!'s)")
_VERB = "is|are|was|were|has|have|may|can|must"
_PRONOUN = re.compile(rf"(It|They|Its|Their|Them|Such|(?:This|That|These|Those) (?:{_VERB}))\b")
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*\[])")
_PROSE = {
    ".py": re.compile(r'\s*(?:#:?|""")\s*(.*)'),
    ".sql": re.compile(r"\s*--\s*(.*)"),
    ".md": re.compile(r"(.*)"),
}
_ASIDE = re.compile(r"\([^()]*\)")
_MARKUP = re.compile(r"^\s*(?:[-*>#]+|\d+\.)\s+|[*_]{2}|\[|\]\([^)]*\)")


def advice_on(sentence: str, *, first: bool = False) -> Iterator[str]:
    """Yield what makes a sentence hard to read; `first`: no sentence before it names what a pronoun stands for."""
    words = max((each.split() for each in _ASIDE.sub("", sentence).split(";")), key=len)
    if (found := _CLAUSE.match(sentence)) and not sentence.rstrip().endswith("?"):
        yield f'begins with "{found[1]}": name the actor first'
    if first and (found := _PRONOUN.match(sentence)):
        yield f'begins with "{found[1]}" and no noun before it: repeat the noun'
    if len(words) > MOST_WORDS:
        yield f"has {len(words)} words in one clause: write two sentences"


def advice_on_text(text: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence of a paragraph that is hard to read, with the reason."""
    for place, sentence in enumerate(_SENTENCE.split(" ".join(text.split()))):
        yield from ((sentence, reason) for reason in advice_on(sentence, first=place == 0))


def added_paragraphs(diff: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the text of each paragraph of prose that a diff without context adds."""
    path, held, in_block = "", [""], False
    for line in [*diff.splitlines(), "@@"]:
        kind = Path(path).suffix
        added = line[1:] if line.startswith("+") and not line.startswith("+++") else None
        found = _PROSE[kind].match(added) if added is not None and kind in _PROSE else None
        if kind == ".md" and added is not None and added.startswith("```"):
            in_block = not in_block
        is_prose = found is not None and found[1].strip() and not (kind == ".md" and (in_block or found[1][0] in "|`<"))
        if is_prose and found is not None and not _MARKUP.match(found[1]):
            held.append(found[1])
            continue
        if text := _MARKUP.sub("", " ".join(held)).strip(' "'):
            yield path, text
        held = [_MARKUP.sub("", found[1])] if is_prose and found is not None else []
        if line.startswith("+++ "):
            path, in_block = line[4:].removeprefix("b/"), False


def advice(subjects: list[str], diff: str) -> Iterator[str]:
    """Yield a line for each subject and each added sentence that is hard to read."""
    for subject in subjects:
        yield from (f"subject: {subject!r} {reason}" for reason in advice_on(subject))
    for path, text in added_paragraphs(diff):
        yield from (f"{path}: {sentence[:100]!r} {reason}" for sentence, reason in advice_on_text(text))


def _git(*words: str) -> str:
    git = shutil.which("git")  # a checkout without it is advised on nothing
    return subprocess.run([git, *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout if git else ""


def advice_on_tree(paths: list[str]) -> list[str]:
    """Return the advice on every line of the tracked files below some paths, of all files without a path."""
    nothing = _git("hash-object", "-t", "tree", os.devnull).strip()
    return list(advice([], _git("diff", "-U0", nothing, "--", *paths))) if nothing else []


def main() -> None:
    """Print the advice on whole files, on a range of commits, or on the commits and changes that main lacks."""
    if sys.argv[1:2] == ["--tree"]:
        found = advice_on_tree(sys.argv[2:])
        print("\n".join([*found, f"wording: {len(found)} in all"]))
        return
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    here = given or ("main..HEAD" if _git("rev-list", "main..HEAD") else "HEAD~1..HEAD")
    subjects = _git("log", "--no-merges", "--format=%s", here).splitlines()
    found = list(advice(subjects, _git("diff", "-U0", *([given] if given else [here.partition("..")[0]]))))
    for line in found[:SHOWN]:
        print(f"wording: {line}")
    if found[SHOWN:]:
        print(f"wording: {len(found) - SHOWN} more")


if __name__ == "__main__":
    main()
