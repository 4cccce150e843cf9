"""The tool that compares every kernel's code after a refactoring: the text it strips, and its report."""

from __future__ import annotations

import pytest

import golden

SASS = """
        .headerflags    @"EF_CUDA_SM80"
        /*0000*/                   MOV R1, c[0x0][0x28] ;              /* 0x00000a0000017a02 */
                                                                       /* 0x000fe40000000f00 */
        /*0010*/              @!P0 BRA 0x30 ;                          /* 0x000001f000008947 */
        /*0020*/                   CALL.REL.NOINC `($sluice$helper) ;  /* 0x000001f000008947 */
        /*0030*/                   STL [R1], R2 ;                      /* 0x000001f000008947 */
        /*0040*/                   EXIT ;                              /* 0x000001f000008947 */
        /*0050*/                   BRA 0x50;                           /* 0x000001f000008947 */
        /*0060*/                   NOP ;                               /* 0x000001f000008947 */
"""
CODE = ["MOV R1, c[0x0][0x28]", "@!P0 BRA +32", "CALL.REL.NOINC `()", "STL [R1], R2", "EXIT"]


def test_addresses_names_and_padding_leave_no_trace() -> None:
    assert golden.instructions(SASS) == CODE
    moved = SASS
    for address in ("60", "50", "40", "30", "20", "10", "00"):  # the same function 16 bytes further on
        moved = moved.replace(f"/*00{address}*/", f"/*00{int(address, 16) + 16:02x}*/")
    moved = moved.replace("BRA 0x30", "BRA 0x40").replace("BRA 0x50", "BRA 0x60").replace("$sluice$helper", "$renamed")
    assert golden.instructions(moved) == CODE
    assert golden.instructions(SASS.replace("R2", "R3")) != CODE


def kernel(sass: str, registers: int = 32, instructions: int = 100) -> dict[str, object]:
    return {
        "registers": registers, "stack": 0, "shared": 0, "spills": 0, "instructions": instructions, "sass": sass,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("new", "percent", "failures", "text"),
    [
        ({"a sm_80": kernel("1"), "b sm_80": kernel("2")}, 0, False, "2 the same code, 0 renamed"),
        ({"a sm_80": kernel("1"), "c sm_80": kernel("2")}, 0, False, "2 the same code, 1 renamed"),
        ({"a sm_80": kernel("1"), "c sm_90a": kernel("2")}, 0, True, "1 gone, 1 new"),
        ({"a sm_80": kernel("1")}, 2, True, "gone: b sm_80"),
        ({"a sm_80": kernel("1"), "b sm_80": kernel("3")}, 0, True, "b sm_80: another hash"),
        ({"a sm_80": kernel("1"), "b sm_80": kernel("3", 32, 101)}, 2, False, "1 changed"),
        ({"a sm_80": kernel("1"), "b sm_80": kernel("3", 33, 100)}, 2, True, "b sm_80: registers 32 -> 33"),
        ({"a sm_80": kernel("1"), "b sm_80": kernel("3", 32, 97)}, 2, True, "b sm_80: instructions 100 -> 97"),
    ],
)
def test_what_differs_is_reported(capsys, new: dict, percent: float, failures: bool, text: str) -> None:
    old = {"a sm_80": kernel("1"), "b sm_80": kernel("2")}
    assert golden.compare(old, new, percent) == failures
    assert text in capsys.readouterr().out


def test_a_spill_that_was_not_there_is_beyond_any_percentage() -> None:
    old, new = {"a sm_80": kernel("1")}, {"a sm_80": kernel("2") | {"spills": 1}}
    assert golden.compare(old, new, 2)
    assert not golden.compare(new, new, 2)
