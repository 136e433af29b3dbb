"""Make cold-start trajectories without a model, check them for leaks, and show one. Runs in seconds, no download."""

import tempfile
from collections import Counter
from pathlib import Path

from algos.tutor_planner import Ground, Settings, check_trajectory, make_record, world_roles
from algos.tutor_planner.export import export
from algos.tutor_planner.patterns import command_shape
from grepseek_env import open_backend
from grepseek_env.env import make_rules
from grepseek_env.render import render_trajectory
from grepseek_env.tasks import load_question_set

questions = load_question_set("world:tiny")[:40]
with open_backend("world:tiny") as backend:
    ground = Ground(backend, make_rules(), Settings(max_steps=5))
    records = [make_record(question, world_roles(), ground, seed=0) for question in questions]

kept = [record.trajectory for record in records if record.trajectory is not None]
shapes = Counter(command_shape(turn.command) for t in kept for turn in t.turns if turn.command)
print(render_trajectory(kept[0]))
print(f"{len(kept)} of {len(records)} questions kept, mean F1 {sum(t.breakdown['f1'] for t in kept) / len(kept):.2f}")
print(f"{shapes.total()} commands of {len(shapes)} shapes; the commonest: {shapes.most_common(1)[0][0]}")
print("findings of the leak rules:", sum(len(check_trajectory(t)) for t in kept))

with tempfile.TemporaryDirectory() as folder:
    for path in export(records, Path(folder)):
        print(f"{path.name:24} {path.stat().st_size:>8} bytes")
