"""A Python program in a process of its own, which imports the package that the tests import."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import sluice

PACKAGE = pathlib.Path(sluice.__file__).parent


def python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    named = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", source], env=named, capture_output=True, text=True)
