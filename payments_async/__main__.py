"""`python -m payments_async`: the command line."""

from payments_async._cli import main

if __name__ == "__main__":
    main()
