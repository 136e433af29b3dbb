"""Verified, leak-free cold-start trajectories by a Tutor, who knows the golden answer, and a Planner, who never does.

    python -m algos.tutor_planner generate --questions world:tiny --limit 100 --out runs/demos
    python -m algos.tutor_planner check runs/demos/trajectories.jsonl

The algorithm is written once (`stages`) against two protocols (`protocols`); `world` implements them for generated
worlds without a model, `llm` over any chat model, `keyword` by plain string search. `leaks` holds the rules that every
trajectory has to pass.
"""

from algos.tutor_planner.leaks import LEAK_CHECKS, Finding, Rule, check_trajectory
from algos.tutor_planner.protocols import Planner, Roles, Tutor
from algos.tutor_planner.records import Drop, Record, View
from algos.tutor_planner.stages import Ground, Settings, make_record
from algos.tutor_planner.world import WorldStyle, world_roles

__all__ = [
    "LEAK_CHECKS",
    "Drop",
    "Finding",
    "Ground",
    "Planner",
    "Record",
    "Roles",
    "Rule",
    "Settings",
    "Tutor",
    "View",
    "WorldStyle",
    "check_trajectory",
    "make_record",
    "world_roles",
]
