#!/usr/bin/env bash
# Makes the virtual environment $1. Where $PYTHON has a torch that is new enough, the environment sees that
# interpreter's packages and nothing is downloaded; else everything comes from the package index.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}

if "$python" - <<'EOF' 2>/dev/null
import re, sys, torch
sys.exit(tuple(map(int, re.match(r"(\d+)\.(\d+)", torch.__version__).groups())) < (2, 11))
EOF
then
  echo "setup: using the torch of $("$python" -c 'import sys; print(sys.executable)')"
  "$python" -m venv --without-pip --clear "$venv"
  # --system-site-packages would show the base interpreter's packages, which are not a parent environment's.
  "$python" - "$venv" <<'EOF'
import glob, site, sys
folders = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
target = glob.glob(f"{sys.argv[1]}/lib/python3*/site-packages")[0]
with open(f"{target}/parent_environment.pth", "w") as file:
    for folder in folders:
        file.write(f"import site; site.addsitedir({folder!r})\n")
EOF
else
  # One known version here; the package itself takes any torch from 2.11 on.
  torch=${SLUICE_TORCH:-torch==2.13.0}
  echo "setup: installing $torch and the tools into $venv"
  "$python" -m venv --clear "$venv"
  pip=("$venv/bin/python" -m pip install -qq --disable-pip-version-check)
  "${pip[@]}" "$torch" "setuptools>=77" wheel ninja numpy pytest pytest-xdist hypothesis matplotlib tqdm transformers==5.23.0 \
    ruff==0.14.5 mypy==1.18.2 clang-format==21.1.5 nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm \
    nvidia-cuda-nvrtc==13.0.88 nvidia-nvjitlink==13.0.88
  command -v cmake >/dev/null || "${pip[@]}" cmake
fi
