"""The production run: many questions at once, resumable, the same set however often it is interrupted.

A run folder holds `journal.jsonl`, one line for every question that is finished, kept or dropped, in the order in which
they end; `manifest.json`; and, written at the end in the order of the questions, what `export` makes of the journal.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from algos.tutor_planner.endpoints import Stopped
from algos.tutor_planner.leaks import LEAK_CHECKS
from algos.tutor_planner.records import Record, Usage
from algos.tutor_planner.stages import make_record
from grepseek_env.errors import ConfigError, GrepSeekError, TrajectoryError
from grepseek_env.manifest import check_resume, run_manifest, write_manifest
from grepseek_env.prompts import prompt_hash
from grepseek_env.tasks.qa import question_to_dict
from grepseek_env.trajectory import TrajectoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from algos.tutor_planner.protocols import Roles
    from algos.tutor_planner.stages import Ground
    from grepseek_env.types import Question

__all__ = ["Prices", "Tally", "generate", "question_key", "read_journal", "settings_of"]

_LOG = logging.getLogger(__name__)
JOURNAL = "journal.jsonl"
_PATIENCE = 5  # failures in a row, besides one for each thread, after which a run gives up


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in any currency.

    Attributes:
        prompt: read.
        completion: written.
    """

    prompt: float = 0.0
    completion: float = 0.0

    def cost(self, usage: Usage) -> float:
        """Returns what this usage costs."""
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / 1e6


class Tally:
    """Counts what a run gives; written by one thread."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.kept = 0
        self.reasons: Counter[str] = Counter()
        self.usage: dict[str, Usage] = {}
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Takes one record in."""
        if record.kept:
            self.kept += 1
        else:
            self.reasons[record.reason or "unknown"] += 1
        for role, usage in record.usage.items():
            self.usage[role] = self.usage.get(role, Usage()) + usage

    @property
    def done(self) -> int:
        """Questions finished."""
        return self.kept + self.reasons.total()

    def cost(self, prices: Mapping[str, Prices]) -> float:
        """Returns what all roles cost together."""
        return sum(prices.get(role, Prices()).cost(usage) for role, usage in self.usage.items())

    def line(self, prices: Mapping[str, Prices], health: str = "") -> str:
        """Returns yield, commonest drop reasons, tokens and cost for a progress bar."""
        parts = [f"kept {self.kept / self.done:.0%}" if self.done else "kept -"]
        parts += [f"{reason} {count}" for reason, count in self.reasons.most_common(3)]
        tokens = sum(usage.prompt_tokens + usage.completion_tokens for usage in self.usage.values())
        if tokens:
            parts.append(f"{tokens / 1e6:.2f}M tokens")
        if cost := self.cost(prices):
            parts.append(f"cost {cost:.2f}")
        if health:
            parts.append(f"endpoints {health}")
        return ", ".join(parts)


def question_key(question: Question) -> str:
    """Returns a hash of everything that a question says, so that a changed file is noticed on resuming."""
    text = json.dumps(question_to_dict(question), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def settings_of(roles: Roles, ground: Ground, *, questions: str, seed: int) -> dict[str, Any]:
    """Returns what decides a run's output; how many questions it takes does not, so that a run can grow."""
    c, rules = ground.rules.config, ground.rules
    return {
        "implementation": roles.name,
        "roles": json.loads(json.dumps(roles.settings)),
        "limits": {name: getattr(ground.settings, name) for name in ground.settings.__slots__},
        "questions": questions,
        "seed": seed,
        "leak_checks": LEAK_CHECKS,
        "action_format": c.action_format,
        "prompt": prompt_hash(rules.system_prompt),
        "max_turns": c.max_turns,
        "max_observation_tokens": c.max_observation_tokens if rules.tokenizer is not None else None,
        "max_observation_chars": c.max_observation_chars if rules.tokenizer is None else None,
        "command_timeout": c.limits.command_timeout,
    }


def read_journal(path: Path) -> Iterator[tuple[str, Record]]:
    """Reads a journal: question keys and records.

    Raises:
        TrajectoryError: a line is bad; names file and line.
    """
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            try:
                values = json.loads(line)
                yield values.pop("key"), Record.from_json(values)
            except (ValueError, TypeError, KeyError, AttributeError, TrajectoryError) as e:
                raise TrajectoryError(f"{path}, line {number}: no record of this run: {e}") from e


def _earlier(path: Path, questions: Sequence[Question]) -> dict[str, Record]:
    keys = {question.id: question_key(question) for question in questions}
    done: dict[str, Record] = {}
    for key, record in read_journal(path):
        if keys.get(record.question_id, key) != key:
            raise ConfigError(
                f"{path.parent}: question {record.question_id!r} is not the one that this run has worked on; "
                "choose another output folder, or pass --overwrite"
            )
        done.setdefault(record.question_id, record)
    return done


def generate(
    questions: Sequence[Question],
    roles: Roles,
    ground: Ground,
    out: Path,
    *,
    name: str,
    seed: int = 0,
    parallel: int = 1,
    overwrite: bool = False,
    progress: bool = False,
    prices: Mapping[str, Prices] | None = None,
    stop: threading.Event | None = None,
    health: Callable[[], str] = str,
) -> list[Record]:
    """Works on all questions and returns their records in the order of the questions.

    Args:
        questions: what to work on; ids must be unique.
        roles: the implementation.
        ground: backend, rules and limits.
        out: the run folder; a run of the same settings in it is resumed, and more questions make it grow.
        name: of the question set, for the manifest.
        seed: everything drawn for a question follows from it and the question's id.
        parallel: questions under way.
        overwrite: start over.
        progress: show a progress bar.
        prices: by role, for the bar.
        stop: set by this function to end the waits of its threads.
        health: of the endpoints, for the bar.

    Raises:
        ConfigError: an option cannot work, or the folder holds another run.
        GrepSeekError: the infrastructure failed for too many questions in a row; what is done is kept.
        KeyboardInterrupt: likewise.
    """
    if parallel < 1:
        raise ConfigError(f"parallel is {parallel!r}; it must be at least 1")
    prices, stop = prices or {}, stop or threading.Event()
    out.mkdir(parents=True, exist_ok=True)
    path = out / JOURNAL
    settings = settings_of(roles, ground, questions=name, seed=seed)
    manifest = run_manifest(settings, corpus_digest=ground.backend.corpus_digest)
    if overwrite:
        path.unlink(missing_ok=True)
    elif not check_resume(out / "manifest.json", manifest) and path.exists():
        raise ConfigError(f"{path} exists without a manifest; choose another output folder, or pass --overwrite")
    write_manifest(out / "manifest.json", manifest)
    with TrajectoryWriter(path) as journal:
        done = _earlier(path, questions)
        left = [question for question in questions if question.id not in done]
        tally = Tally(done[question.id] for question in questions if question.id in done)
        bar = tqdm(total=len(questions), initial=tally.done, unit="question", disable=not progress)
        with bar:
            for question, record in _work(left, roles, ground, seed=seed, parallel=parallel, stop=stop):
                line = {"key": question_key(question), **record.as_json()}
                journal.append(json.dumps(line, ensure_ascii=True))
                done[question.id] = record
                tally.add(record)
                bar.update()
                bar.set_postfix_str(tally.line(prices, health()), refresh=False)
    return [done[question.id] for question in questions if question.id in done]


def _work(
    questions: Sequence[Question], roles: Roles, ground: Ground, *, seed: int, parallel: int, stop: threading.Event
) -> Iterator[tuple[Question, Record]]:
    """Yields records as they end; an infrastructure failure leaves its question for the next run."""
    waiting = iter(questions)
    under_way: dict[Future[Record], Question] = {}
    failures = 0
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="tutor")

    def one(question: Question) -> Record:
        if stop.is_set():
            raise Stopped("stopped before a question")
        return make_record(question, roles, ground, seed=seed)

    try:
        while True:
            while len(under_way) < parallel and (question := next(waiting, None)) is not None:
                under_way[pool.submit(one, question)] = question
            if not under_way:
                return
            finished, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in finished:
                question = under_way.pop(future)
                try:
                    record = future.result()
                except ConfigError:
                    raise
                except GrepSeekError as e:
                    failures += 1
                    _LOG.warning("question %s is left for the next run: %s: %s", question.id, type(e).__name__, e)
                    if failures >= _PATIENCE + parallel:
                        raise
                    continue
                failures = 0
                yield question, record
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
