"""``python -m srpfl`` is the command ``srpfl``."""

from srpfl.cli import main

if __name__ == "__main__":
    main()
