"""`python -m skiplens` is the command `skiplens`."""

from skiplens.cli.main import main

if __name__ == "__main__":
    main()
