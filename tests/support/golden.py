"""Golden files: JSONL rows of inputs with the `want` that the code must give, updated by `pytest --update-golden`.

A case is added by writing its row without `want` and running the updater; what it filled in is reviewed as a diff.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1] / "golden"
SHOWN = 5


@dataclass(frozen=True)
class Golden:
    update: bool

    def check(self, name: str, compute: Callable[[dict[str, Any]], Any]) -> None:
        """Compares `compute(row)` with `row["want"]` for every row of tests/golden/<name>; `name` ends in .jsonl."""
        path = ROOT / name
        rows = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
        assert rows, f"{path} has no cases"
        # A round trip through JSON, so that a tuple in what is computed equals the list in the file.
        got = [json.loads(json.dumps(compute(row))) for row in rows]
        if self.update:
            made = "".join(json.dumps({**row, "want": value}) + "\n" for row, value in zip(rows, got, strict=True))
            temporary = path.with_suffix(".new")
            temporary.write_text(made, encoding="ascii")
            temporary.replace(path)
            return
        differing = [
            f"  case {row}\n  gives {value!r}"
            for row, value in zip(rows, got, strict=True)
            if "want" not in row or value != row["want"]
        ]
        assert not differing, (
            f"{len(differing)} of {len(rows)} cases of tests/golden/{name} differ; if that is wanted, it is a new "
            f"version of the environment: pytest --update-golden\n" + "\n".join(differing[:SHOWN])
        )
