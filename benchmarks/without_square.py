"""The numbers of local regressions, SLIM, dual models that serve, lists and short commands, one after the other.

    .venv/bin/python benchmarks/without_square.py [--peer PYTHON]

Runs slim.py, local.py, expand.py, the lists of foundation.py and start.py, each of which can be run alone; about half
an hour on two cores, with 12 GB of memory and 20 GB of disk. Nothing else should run at the same time. `--peer` is the
Python of another environment with lenskit 2025.8.1; without it SLIM is measured without LensKit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON", help="a python that has lenskit 2025.8.1")
    given = parser.parse_args()
    parts = (
        ["slim.py", *(["--peer", given.peer] if given.peer else [])],
        ["local.py"],
        ["expand.py", "--serve"],
        ["foundation.py", "topk", "topk_sparse"],
        ["start.py"],
    )
    failed = [name for name, *flags in parts if subprocess.run([sys.executable, HERE / name, *flags]).returncode]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
