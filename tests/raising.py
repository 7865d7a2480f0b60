"""What a call raises, for tests that compare whole messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def message_of(kind: type[BaseException], call: Callable[[], object]) -> str:
    """The whole text of the error of this kind that a call ends in."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)
