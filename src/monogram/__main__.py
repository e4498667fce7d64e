"""`python -m monogram` is the program `monogram`."""

from monogram.cli import main

main()
