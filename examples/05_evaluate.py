"""Evaluate two policies, compare them question by question, write a page to look at. CPU, ten seconds."""

from pathlib import Path
from tempfile import mkdtemp

from algos.evaluate import compare, evaluate
from algos.evaluate.tables import comparison_table
from grepseek_env.view import find_runs, write_page
from policies.base import make_policy

folder = Path(mkdtemp(prefix="grepseek-evaluate-"))

# The same question for both, so that the comparison is a paired one. `questions` takes names ("nq,hotpotqa"), FlashRAG
# files, or nothing: the questions of a generated world. A model is make_policy("hf", model="checkpoints/sft").
for name in ("keyword", "random"):
    result = evaluate(make_policy(name), folder / name, corpus="world:tiny", limit=60, samples=2, by="hops")
    print(result.table, end="\n\n")

# Everything in the table is in summary.json too, and every scored answer in predictions.jsonl.
f1 = result.summary["micro"]["f1"]
print(f"random: F1 {f1['mean']:.3f}, 95 % interval {f1['ci95'][0]:.3f} to {f1['ci95'][1]:.3f}\n")

# Is the keyword policy better than the random one, or only luckier?
print(comparison_table(compare(folder / "random", folder / "keyword", resamples=2000)))

page = write_page(find_runs([folder / "keyword", folder / "random"]), folder / "view.html")
print(f"\n{page.trajectories} trajectories to look at: {page.path}")
