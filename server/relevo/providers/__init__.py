"""Push services: a folder for each, and what several share. The facts are light; all else needs the server."""
