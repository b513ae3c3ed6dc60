"""`python driver.py CLAIMS_FOLDER ARGUMENT...`: `dtk` with sample claims, for tests that kill it."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    import pytest

    from dtk.cli.main import run
    from tests.repro.samples import install

    folder, *arguments = sys.argv[1:]
    install(Path(folder), pytest.MonkeyPatch())
    sys.exit(run(arguments))
