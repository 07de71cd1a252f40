"""python -m graphc: the command line."""

from ._tools import main

main()
