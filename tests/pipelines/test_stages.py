"""Progress of what goes in stages: how many there are, and how long they take."""

from __future__ import annotations

import pytest

from ragidx.pipelines.base import stages
from ragidx.pipelines.base.stages import Stage, Stages


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still until a test changes it."""
    now = [0.0]
    monkeypatch.setattr(stages.time, "perf_counter", lambda: now[0])
    return now


def test_the_time_that_is_left_follows_from_the_stages_that_ended(clock: list[float]) -> None:
    seen: list[Stage] = []
    tell = Stages(seen.append)

    tell("encoding")
    clock[0] = 100.0
    tell.expect(3)
    for name in ("one", "two", "three"):
        tell(name)
        clock[0] += 2.0

    assert [(one.number, one.total, one.left_s) for one in seen] == [
        (1, 0, None), (2, 4, None), (3, 4, 4.0), (4, 4, 2.0)
    ]  # fmt: skip


def test_parts_to_come_are_thought_to_be_like_those_before(clock: list[float]) -> None:
    seen: list[Stage] = []
    tell = Stages(seen.append, parts=3)

    for encoding_s in (100.0, 40.0, 70.0):
        tell("encoding")
        clock[0] += encoding_s
        tell.expect(2)
        for name in ("one", "two"):
            tell(name)
            clock[0] += 5.0

    assert [(one.number, one.total, one.left_s) for one in seen] == [
        (1, 0, None), (2, 9, None), (3, 9, 225.0),  # 5 s of this part, and two parts of 110 s
        (4, 9, 220.0), (5, 9, None), (6, 9, 85.0),
        (7, 9, 80.0), (8, 9, None), (9, 9, 5.0),
    ]  # fmt: skip


def test_a_part_that_was_left_out_is_not_waited_for(clock: list[float]) -> None:
    seen: list[Stage] = []
    tell = Stages(seen.append, parts=2)

    tell("encoding")
    tell.parts -= 1
    tell("encoding")
    tell.expect(2)
    tell("one")

    assert seen[-1].total == 4
