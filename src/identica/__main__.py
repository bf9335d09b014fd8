"""``python -m identica`` is the same as ``identica``."""

from identica.cli import main

if __name__ == "__main__":
    main()
