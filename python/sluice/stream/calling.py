"""A call of `fn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import faults
from .modes import mark_step
from .process import Owner


def call_fn(
    op: str, fn: Callable[..., Any], arguments: list[Any], name: Callable[[], str], owner: Owner | None = None
) -> Any:
    """The result of `fn`; an error gets a note with the name of what it was called for. Empties `arguments`.

    `owner` is the process that may go on: `fn` may have forked.
    """
    mark_step()
    try:
        value = fn(*arguments)
        if owner is not None and not owner.is_here():
            raise faults.in_a_fork(op)
        return value
    except BaseException as error:
        faults.add_note(error, f"{op}: raised by fn for {name()}")
        raise
    finally:
        arguments.clear()  # a traceback must not keep them alive
