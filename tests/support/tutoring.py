"""Generated demonstrations for tests, made once a process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from algos.tutor_planner import Ground, Settings, WorldStyle, make_record, world_roles
from grepseek_env.backend import open_backend
from grepseek_env.env import make_rules
from grepseek_env.tasks import load_question_set

if TYPE_CHECKING:
    from algos.tutor_planner import Record


@cache
def ground(corpus: str = "world:tiny", **settings: int) -> Ground:
    """Opens a corpus with the environment's default rules; it stays open with the process."""
    return Ground(
        open_backend(corpus, daemon=False),
        make_rules(action_format="hermes", max_turns=6),
        Settings(**{"max_steps": 5, **settings}),
    )


@cache
def demonstrations(count: int, corpus: str = "world:tiny", style: WorldStyle | None = None) -> tuple[Record, ...]:
    """Returns the records of the first questions of a world."""
    questions = load_question_set(corpus)
    roles = world_roles(style)
    tries = 1 if style and style.quality == "plain" else 6
    return tuple(make_record(questions[i], roles, ground(corpus, refinements=tries), seed=0) for i in range(count))
