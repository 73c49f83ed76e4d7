"""The overview says at its top that nothing is sent, while a project is in shadow mode."""

from __future__ import annotations

from typing import Any

from relevo.operators import shadow
from support.dashboard_person import Person
from support.http_server import Served


def test_the_overview_names_projects_in_shadow(served: Served, person: Person, command: Any) -> None:
    """In English and Spanish, with each project; after the end of the mode nothing is left of it. `relevo status` says
    it, too."""
    person.log_in()
    assert "Shadow mode" not in person.get("/dashboard").text
    for project in ("shop", shadow.ALL):
        shadow.begin_shadow(served.app.database, project)
    page = person.get("/dashboard", headers={"Accept-Language": "en"}).text
    assert "Shadow mode: nothing is sent." in page
    assert "all projects" in page
    assert "project shop" in page
    assert "Modo sombra: no se envía nada." in person.get("/dashboard", headers={"Accept-Language": "es"}).text
    assert "nothing is sent of all projects, project shop." in command("status").out
    assert command("shadow", "off", "--project", "shop").code == 0
    assert command("shadow", "off", "--all").code == 0
    assert "Shadow mode" not in person.get("/dashboard").text
    assert "No project is in shadow mode" in command("shadow", "list").out
    assert command("shadow", "on").code == 2
