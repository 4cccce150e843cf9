"""The sources that each part of the GPU check runs: a part that passed runs again only when they change.

A part leaves out the folders that it does not run, and every header that only these folders include.
"""

import functools
import re

from source_tree import ROOT, load_source_hash

CONVOLUTIONS = (
    *(f"kernels/operators/{operator}/" for operator in ("conv1d", "conv_transpose1d", "causal_conv1d", "transpose")),
    *("ops/causal", "ops/conv", "ops/pack", "ops/cpu/sequences"),
)
CAUSAL = ("kernels/operators/causal_conv1d/", "ops/causal", "ops/cpu/sequences")
_CONV1D = "kernels/operators/conv1d/"
DENSE = (f"{_CONV1D}dense/", f"{_CONV1D}interleaved/", "kernels/operators/conv_transpose1d/")
STENCILS = ("kernels/operators/filter2d/", "ops/filter2d", "ops/stencil")
STREAMS = ("kernels/transfer/", "ops/transfer", "ops/cpu/transfer", "ops/cuda/transfer", "python/sluice/stream/")
# They name the launches of all ops: a header that they include is of a part that another file brings it into.
TABLES = ("ops/common/launch.h", "ops/cpu/launch.cpp", "ops/cuda/launch.cpp")
# The folders that a part does not run; a part without a row runs all.
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_PORTABLE = ("portable", "memcheck_portable", "initcheck_portable")
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "pointwise": (*CONVOLUTIONS, *STENCILS, *STREAMS),
    "convolutions": (*STENCILS, *STREAMS),
    "stencils": (*CONVOLUTIONS, *STREAMS),
    "streams": (*CONVOLUTIONS, *STENCILS),
    "life": (*CONVOLUTIONS, *STENCILS),
    **dict.fromkeys(_TOOLS, (*DENSE, *CAUSAL)),
    **{f"{tool}_causal": (*DENSE, *STENCILS, *STREAMS) for tool in _TOOLS},
    **{f"{tool}_dense": (*CAUSAL, *STENCILS, *STREAMS) for tool in _TOOLS},
    **dict.fromkeys(_PORTABLE, (*CAUSAL, *STENCILS, *STREAMS)),
}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


@functools.cache
def _sources() -> dict[str, bytes]:
    module = load_source_hash()
    return {path.relative_to(ROOT).as_posix(): module.without_comments(path) for path in module.hashed_sources(ROOT)}


@functools.cache
def _included(name: str) -> tuple[str, ...]:
    sources = _sources()
    if name in TABLES:
        return ()
    return tuple(other for other in _INCLUDE.findall(sources[name].decode(errors="replace")) if other in sources)


def sources_of(part: str) -> list[str]:
    """The files that the part's results depend on, sorted."""
    left_out = LEFT_OUT.get(part, ())
    found: set[str] = set()
    # CMake writes sources that include headers which nothing else includes.
    headers = {other for name in _sources() for other in _included(name)}
    reached = [name for name in _sources() if name not in headers and not name.startswith(left_out)]
    while reached:
        name = reached.pop()
        if name not in found:
            found.add(name)
            reached += _included(name)
    return sorted(found)


def part_hash(part: str) -> str:
    """SHA-256 of the part's sources, as source_hash computes it of all."""
    return str(load_source_hash().hash_of({name: _sources()[name] for name in sources_of(part)}))
