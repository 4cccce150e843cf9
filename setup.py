"""Builds the libraries by calling CMake, and tags the wheel; everything else is in pyproject.toml."""

import os
import pathlib
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent.resolve()
# SLUICE_ARCHS=release: code for every generation of GPUs, built in a folder of its own. Else what CMakeLists.txt names.
if (archs := os.environ.get("SLUICE_ARCHS", "")) not in ("", "release"):
    raise SystemExit(f"sluice: SLUICE_ARCHS must be release, got {archs!r}")
RELEASE = archs == "release"
ARCHITECTURES = ["-DSLUICE_CUDA_ARCHS=80;86;90a;100;120", "-DSLUICE_LTO_ARCHS=80;90a"] if RELEASE else []
BUILD = ROOT / "build" / ("release" if RELEASE else "cmake")


def torch_directory() -> pathlib.Path:
    """The directory of the torch package, found without the seconds that importing it takes."""
    import importlib.util

    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("sluice: building needs torch>=2.11 (install it, or pass --no-build-isolation)")
    return pathlib.Path(spec.origin).parent


class CMakeBuild(build_ext):
    def run(self) -> None:
        package = ROOT / "python" / "sluice" if self.inplace else pathlib.Path(self.build_lib).resolve() / "sluice"
        configure = [
            "cmake",
            f"-S{ROOT}",
            f"-B{BUILD}",
            "-GNinja",
            f"-DSLUICE_VERSION={self.distribution.get_version()}",
            f"-DSLUICE_TORCH_DIR={torch_directory()}",
            f"-DSLUICE_WITH_CUDA={os.environ.get('SLUICE_WITH_CUDA', 'auto')}",
            f"-DSLUICE_PRELINK={os.environ.get('SLUICE_PRELINK', 'ON')}",
            f"-DSLUICE_TESTS={os.environ.get('SLUICE_TESTS', 'OFF')}",
            *ARCHITECTURES,
            *os.environ.get("CMAKE_ARGS", "").split(),
        ]
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        self.call(configure, stdout=None if self.verbose else subprocess.DEVNULL)
        self.call(["cmake", "--build", str(BUILD), "--parallel", jobs])
        # Removed first: a process that has the old library mapped must not see it overwritten.
        for library in package.glob("*.so"):
            library.unlink()
        self.call(["cmake", "--install", str(BUILD), "--prefix", str(package), "--strip"], stdout=subprocess.DEVNULL)

    def call(self, command: list[str], **options: int | None) -> None:
        if self.verbose:
            print(" ".join(command), file=sys.stderr, flush=True)
        if (status := subprocess.run(command, **options).returncode) != 0:
            raise SystemExit(f"sluice: {' '.join(command[:2])} failed with exit status {status}")


class PlatformWheel(bdist_wheel):
    """No CPython API is used, so one wheel serves every Python: py3-none-<platform>."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("sluice._C", sources=[])], cmdclass={"build_ext": CMakeBuild, "bdist_wheel": PlatformWheel}
)
