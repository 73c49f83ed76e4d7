"""The cost of Relevo, beside others: `python -m bench` measures, prints a table, and writes JSON and charts."""
