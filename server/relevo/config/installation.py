"""This installation: its name, its folders, its own parts and its logs."""

from __future__ import annotations

from pathlib import Path

from relevo.config.kinds import ExistingFolder, Folder, FunctionName, LogFormat, LogLevel, Name
from relevo.config.setting import Theme, everyday, expert


class Installation(Theme):
    """This installation."""

    relevo_instance: Name | None = everyday(
        "The name of this installation, such as production: a copy of its database under another name pushes to nobody."
    )
    relevo_app: FunctionName | None = everyday(
        "The module:function that returns relevo.Parts: your own sources, providers, cycles, composers and more."
    )
    relevo_data_dir: Folder = everyday("The folder in which the embedded PostgreSQL lives.", Path(".relevo"))
    log_level: LogLevel = everyday("The least important lines to log: debug, info, warning or error.", "info")
    log_format: LogFormat = everyday("How lines are logged: console for the eye, json for machines.", "console")
    relevo_demo: bool = expert(
        "Whether an embedded PostgreSQL may be made where there is none, without DATABASE_URL; `make` sets it.", False
    )
    relevo_postgres_bin: ExistingFolder | None = expert(
        "The folder with the PostgreSQL programs to embed; without it they are looked for."
    )
