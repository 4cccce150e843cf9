"""Runs a command and prints how long it took: `timed.py <what> <command...>`."""

import subprocess
import sys
import time

start = time.monotonic()
status = subprocess.run(sys.argv[2:]).returncode
print(f"{sys.argv[1]}: {time.monotonic() - start:.0f} s", flush=True)
sys.exit(status)
