"""`python -m ebbtide.cli` is the `ebbtide` command."""

from ebbtide.cli import main

if __name__ == "__main__":
    main()
