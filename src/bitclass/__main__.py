"""`python -m bitclass` is the `bitclass` command."""

from bitclass.cli import main

if __name__ == "__main__":
    main()
