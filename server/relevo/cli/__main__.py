"""`python -m relevo.cli` is the command `relevo`."""

from relevo.cli import main

main()
