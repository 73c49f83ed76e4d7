"""The advice on wording names sentences that are hard to read, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import wording_advice

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("Let a connection become what is spoken on it", 'begins with "Let"'),
        ("Say whose pause it is", 'begins with "Say"'),
        ("Whoever asks is told", 'begins with "Whoever"'),
        (" ".join(["Retry", *["each"] * 30]), "has 31 words"),
    ],
)
def test_a_subject_that_is_hard_to_read_is_named(subject: str, words: str) -> None:
    """A free clause at the beginning, and more words than one reads at once."""
    assert any(words in line for line in wording_advice.advice([subject], ""))


@pytest.mark.parametrize(
    "sentence",
    ["Retry a failed batch", "What is a claim?", "Letters are kept", f"Relevo sends ({'a ' * 40}) it; {'b ' * 25}"],
)
def test_a_plain_sentence_is_not_named(sentence: str) -> None:
    """Questions, actors, words that only begin alike, and long lists in brackets or after a semicolon are left alone."""
    assert list(wording_advice.advice_on(sentence, first=True)) == []


def test_a_pronoun_needs_a_noun_before_it() -> None:
    """A paragraph that begins with a pronoun is named; a later sentence may begin with one."""
    assert [reason for _, reason in wording_advice.advice_on_text("It is read again.")]
    assert list(wording_advice.advice_on_text("Relevo reads the file. It is small.")) == []


DIFF = '''\
diff --git a/server/docs/a.md b/server/docs/a.md
+++ b/server/docs/a.md
@@ -0,0 +1,9 @@
+# Title
+
+What is above a cap is not
+pushed.
+
+```console
+What stands in a block is code.
+```
+| What stands in a table | is short |
-What is removed is nobody's
diff --git a/server/relevo/b.py b/server/relevo/b.py
+++ b/server/relevo/b.py
@@ -1 +1,4 @@
+    """Tell what is left."""
+    said = "What the code says"
+    # Whoever asks twice waits.
diff --git a/sql/c.sql b/sql/c.sql
+++ b/sql/c.sql
@@ -1 +1 @@
+-- These are looked up by key.
diff --git a/d.json b/d.json
+++ b/d.json
@@ -1 +1 @@
+What is data
'''


def test_added_prose_is_read_and_code_is_not() -> None:
    """Paragraphs of pages, docstrings and comments count; blocks, tables, strings, removed lines and data do not."""
    named = [line.split(":")[0] for line in wording_advice.advice([], DIFF)]
    assert named == ["server/docs/a.md", "server/relevo/b.py", "server/relevo/b.py", "sql/c.sql"]
    [page] = [text for path, text in wording_advice.added_paragraphs(DIFF) if path.endswith("a.md") and "cap" in text]
    assert page == "What is above a cap is not pushed."


def test_whole_files_are_read() -> None:
    """Below a path every line counts, whenever it was added; the present texts of verbs and access have no free clause."""
    assert any("begins with" in line for line in wording_advice.advice_on_tree(["tests/migrations/released"]))
    named = wording_advice.advice_on_tree(["server/relevo/verbs", "server/relevo/access"])
    assert [line for line in named if "name the actor first" in line] == []


def test_it_never_fails() -> None:
    """The command ends with 0 for any range, even one that git does not know: it only advises."""
    for given in ([], ["no-such-range..HEAD"], ["--tree", "no/such/folder"]):
        command = [sys.executable, str(ROOT / "scripts" / "wording_advice.py"), *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
