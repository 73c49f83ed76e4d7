"""This installation: its name, its folders, its own parts and its logs."""

from __future__ import annotations

from pathlib import Path

from relevo.config.kinds import ExistingFolder, Folder, FunctionName, LogFormat, LogLevel, Name
from relevo.config.setting import Theme, everyday, expert


class Installation(Theme):
    """This installation."""

    relevo_instance: Name | None = everyday(
        "This installation's name, such as production. A copy of its database under another name pushes to nobody."
    )
    relevo_app: FunctionName | None = everyday(
        "The module:function that returns relevo.Parts: your own sources, providers, cycles, composers and more."
    )
    relevo_data_dir: Folder = everyday("The embedded PostgreSQL's folder.", Path(".relevo"))
    log_level: LogLevel = everyday("The lowest level to log: debug, info, warning or error.", "info")
    log_format: LogFormat = everyday("The log's format: console for people, json for machines.", "console")
    relevo_demo: bool = expert(
        "Whether Relevo may create an embedded PostgreSQL if DATABASE_URL is unset; `make` sets it.", False
    )
    relevo_postgres_bin: ExistingFolder | None = expert(
        "The folder of the PostgreSQL programs to embed. Without it Relevo searches for them."
    )
