"""`python -m dtk` is the same as the `dtk` command."""

from dtk.cli.entry import main

if __name__ == "__main__":
    main()
