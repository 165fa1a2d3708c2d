"""`python -m addrfrac`."""

from addrfrac.cli import main

if __name__ == "__main__":
    main()
