"""Stages in C++ on the GPU."""

from __future__ import annotations

import pytest
import torch

import sluice
from common import TOLERANCE, assert_close, double_chain, relative_error
from linked_forms import interpreted
from marks import LINKED_ON_GPU
from sluice import reference, stages

pytestmark = LINKED_ON_GPU


SOFT = stages.cpp(
    """float y = x * a;
    return y / (1.0f + fabsf(y)) + b;""",
    name="soft", a=0.5, b=torch.tensor([0.25]), reference=lambda x, a, b: x * a / (1 + (x * a).abs()) + b,
)  # fmt: skip


def soft(scale: torch.Tensor) -> sluice.Chain:
    source = SOFT.stages[0][1][0]
    return stages.cpp(source.text, name=source.name, a=0.5, b=scale, reference=source.reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_cpp_stage_is_its_reference(dtype: torch.dtype) -> None:
    x, scale = torch.randn(5, 3001, device="cuda").to(dtype), torch.randn(5, 1, device="cuda")
    chain = stages.scale(2.0) | soft(scale) | stages.relu()
    wanted = reference.transform(x.double(), double_chain(chain), dtype=torch.float64)
    # Its float variables round for float64 too.
    assert relative_error(chain(x), wanted) < max(TOLERANCE[dtype], 1e-6)


def test_a_cpp_stage_behind_a_convolution_and_compiled() -> None:
    x, w = torch.randn(2, 8, 600, device="cuda"), torch.randn(8, 1, 5, device="cuda")
    scale = torch.randn(8, 1, device="cuda")
    post = soft(scale)

    def model(x: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, w, padding=2, groups=8, post=post)

    with torch.no_grad():
        wanted = reference.conv1d(x.double(), w.double(), padding=2, groups=8, post=double_chain(post))
        assert_close(model(x), wanted)
        assert_close(torch.compile(model, fullgraph=True)(x), wanted)


def test_cpp_parameters_beyond_three() -> None:
    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    chain = stages.cpp("a + b * x + c * x * x + d * e", a=1.0, b=y, c=0.5, d=y, e=2.0)
    assert_close((chain | stages.scale(2.0))(x), 2 * (1 + y.double() * x + 0.5 * x.double() ** 2 + y.double() * 2))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x * undefined_name", "undefined_name"),
        ("x *", "expected an expression"),
        ("float y = x;\nreturn z;", r"bad\(2\)"),
    ],
)
def test_a_cpp_stage_that_does_not_compile(text: str, complaint: str) -> None:
    x = torch.randn(100, device="cuda")
    with pytest.raises(ValueError, match=complaint) as caught:
        stages.cpp(text, name="bad")(x)
    assert text in str(caught.value)
    assert "transform: a cpp stage must compile" in str(caught.value)
    with pytest.raises(ValueError, match=complaint):  # and again, without a new compilation
        stages.cpp(text, name="bad")(x)


def test_without_linking_a_cpp_stage_says_so() -> None:
    x = torch.randn(100, device="cuda")
    with pytest.raises(ValueError, match="must be linked.*SLUICE_LINK=0"):
        interpreted(lambda: stages.cpp("x + 1")(x))
