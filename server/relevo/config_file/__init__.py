"""The configuration file, `relevo.yaml`: read, compared with the database, applied, and written from a database."""
