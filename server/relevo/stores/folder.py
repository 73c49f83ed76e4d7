"""A folder as the archive's store: an object appears whole, is on the disk by then, and replaces none by chance."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from relevo.core.errors import ArchiveError, ArchiveMissingError, ArchiveMonthError
from relevo.core.model import StoredObject

_UNFINISHED = ".unfinished-"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderStore:
    """Objects as files below a folder."""

    def __init__(self, folder: Path, prefix: str, *, ours: bool = False) -> None:
        self._folder, self._root = folder, folder / prefix
        self._ours = ours  # and so to be made; another's may be a disk that is not mounted

    @property
    def name(self) -> str:
        """The folder."""
        return str(self._root)

    def put(self, key: str, path: Path, *, replace: bool = False) -> bool:
        """Copy to a name of its own, flush it to the disk, then give it the key's name in one move."""
        with self._complaining(key):
            target = self._path(key)
            self._make_folders(target.parent)
            unfinished = target.parent / f"{_UNFINISHED}{uuid4().hex}"
            try:
                with path.open("rb") as source, unfinished.open("xb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                    file.flush()
                    os.fsync(file.fileno())
                done = _name(unfinished, target, replace=replace)
            finally:
                unfinished.unlink(missing_ok=True)
            _sync_folder(target.parent)
            return done

    def fetch(self, key: str, path: Path) -> None:
        """Copy an object's file."""
        with self._complaining(key):
            source = self._path(key)
            try:
                shutil.copyfile(source, path)
            except FileNotFoundError:
                if not source.exists():
                    raise ArchiveMissingError(f"There is no {key} in {self.name}.") from None
                raise

    def listing(self, prefix: str) -> Sequence[StoredObject]:
        """Walk the folder; what is unfinished does not count."""
        with self._complaining(prefix):
            found = [
                StoredObject(path.relative_to(self._root).as_posix(), path.stat().st_size)
                for path in self._walk(prefix)
                if path.is_file() and not path.name.startswith(_UNFINISHED)
            ]
        return sorted(found, key=lambda each: each.key)

    def tidy(self, prefix: str) -> None:
        """Remove the unfinished files of processes that died."""
        with self._complaining(prefix):
            for path in self._walk(prefix):
                if path.name.startswith(_UNFINISHED):
                    path.unlink(missing_ok=True)

    def _walk(self, prefix: str) -> Iterator[Path]:
        """Yield all that lies under keys which begin so."""
        for path in self._path(prefix.rpartition("/")[0]).rglob("*"):
            if path.relative_to(self._root).as_posix().startswith(prefix):
                _refuse_link(path)
                yield path

    def _path(self, key: str) -> Path:
        """Return where an object lies, which no link below the folder may lead away from."""
        path = self._root / key
        for each in (path, *path.parents):
            if each == self._folder:
                break
            _refuse_link(each)
        return path

    def arrow_filesystem(self) -> tuple[Any, str]:
        """Read the folder itself."""
        from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 Arrow takes a tenth of a second; only queries need it here

        return LocalFileSystem(), self._root.absolute().as_posix()

    def warehouse(self) -> tuple[str, dict[str, str]]:
        """Name the folder itself."""
        return self._root.absolute().as_uri(), {}

    def _make_folders(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing:
            _sync_folder(each.parent)

    @contextmanager
    def _complaining(self, key: str) -> Iterator[None]:
        if not self._ours and not self._folder.is_dir():
            raise ArchiveError(
                f"The archive's folder {self._folder} is not there.",
                hint="Check that its disk is mounted. Create the folder only if it is new: else exports could go to "
                "another disk.",
            )
        try:
            yield
        except OSError as error:
            hint = "Is ARCHIVE_FOLDER there, and may this process write to it?"
            if error.errno in _NO_SPACE:
                hint = "Its disk is full: make room, and the export goes on by itself."
            raise ArchiveError(
                f"The folder {self.name} cannot be used for {key}: {error.strerror}.", hint=hint
            ) from error


def _refuse_link(path: Path) -> None:
    """Refuse what may lead to another disk, and is not followed when the folder is walked."""
    if path.is_symlink():
        raise ArchiveMonthError(
            f"{path} is a symbolic link.", hint="Replace the link with its target; only ARCHIVE_FOLDER may be a link."
        )


def _name(unfinished: Path, target: Path, *, replace: bool) -> bool:
    if replace:
        unfinished.replace(target)
        return True
    try:
        target.hardlink_to(unfinished)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links cannot do both at once; there is one exporter, and it reads back.
        if target.exists():
            return False
        unfinished.replace(target)
    return True


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
