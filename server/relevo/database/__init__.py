"""The way to PostgreSQL: connections, migrations, whose database it is."""
