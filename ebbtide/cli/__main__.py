"""`python -m ebbtide.cli` is the `ebbtide` command."""

from ebbtide.cli import main

main()
