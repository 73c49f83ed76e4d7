"""A mistake as a change of one place of one file, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mistake:
    """A mistake that a hurried change might make."""

    rule: str
    """The rule that it breaks."""
    file: str
    """Where, below the checkout."""
    text: str
    """The present text, which stands there once."""
    instead: str
    tests: tuple[str, ...]
    """The tests to run: files, and maybe more arguments of pytest."""
    also: tuple[tuple[str, str], ...] = ()
    """Further texts of the file, and what stands there instead: a rule may be written twice."""

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """Each text that is changed, and what stands there instead."""
        return ((self.text, self.instead), *self.also)

    def put_in(self, folder: Path) -> None:
        """Change the file in a copy of the checkout."""
        path = folder / self.file
        whole = path.read_text(encoding="utf-8")
        for text, instead in self.changes:
            if whole.count(text) != 1:
                raise ValueError(f"{self.file} holds {whole.count(text)} times: {text}")
            whole = whole.replace(text, instead)
        path.write_text(whole, encoding="utf-8")

    def take_out(self, folder: Path) -> None:
        """Bring the file back."""
        (folder / self.file).write_text((ROOT / self.file).read_text(encoding="utf-8"), encoding="utf-8")
