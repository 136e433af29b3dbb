"""`Trajectory`: the record of one episode, its JSONL form, its chat messages and its spans.

One line a trajectory, UTF-8 JSON. A writer appends whole lines only; a line that a crash cut short is dropped when
the file is opened again, so an interrupted run can go on.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

from grepseek_env.errors import TrajectoryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["SCHEMA", "Message", "Span", "Trajectory", "TrajectoryWriter", "Turn", "read_trajectories"]

SCHEMA = "grepseek-trajectory/1"

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy turn and what came back.

    Attributes:
        text: exactly what the policy wrote.
        kind: what was read from it.
        observation: the environment's next text; empty after the last turn.
        command: the command of a tool call, else None.
        exit_code: of the command; None when it was not run, was cut or ran out of time.
        output_truncated: the observation shows only the head of the output.
        timed_out: the command's deadline passed.
        refused: name of the command-language rule that refused the command, else None.
        token_ids: what the policy's model sampled for this turn, its end-of-turn token included; None where it did not
            tell. They may decode to more than `text`, since a stop string can end inside a token.
        logprobs: of `token_ids`, one each; None where they were not asked for.
        finish_reason: why the model stopped ("stop", "length", ...); None for a policy without a model.
    """

    text: str
    kind: Literal["tool_call", "final_answer", "malformed"]
    observation: str = ""
    command: str | None = None
    exit_code: int | None = None
    output_truncated: bool = False
    timed_out: bool = False
    refused: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of characters of `Trajectory.text()` with the side that wrote it."""

    start: int
    end: int
    writer: Literal["policy", "environment"]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode from the question to its end.

    Attributes:
        question_id: id of the question within its set.
        question: its text.
        golden_answers: accepted answers.
        action_format: name of the entry of ACTION_FORMATS the policy wrote in.
        system_prompt: text of the system message.
        prompt: the first observation.
        turns: policy turns in order.
        finish_reason: "answer", "turn_limit", "budget" when the policy had no tokens left for another turn, "fault", or
            "abandoned" when the driver stopped early.
        answer: the final answer, None without one.
        reward: the return of the episode; not meaningful where `reward_valid` is false.
        reward_valid: false after an infrastructure fault: do not learn from this episode.
        breakdown: parts of the reward (f1, em, format_valid, ...).
        error: text of the fault, else None.
        metadata: anything the writer adds (policy, seed, sample index, corpus digest), JSON values only.
    """

    question_id: str
    question: str
    golden_answers: tuple[str, ...]
    action_format: str
    system_prompt: str
    prompt: str
    turns: tuple[Turn, ...]
    finish_reason: Literal["answer", "turn_limit", "budget", "fault", "abandoned"]
    answer: str | None
    reward: float
    reward_valid: bool
    breakdown: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def messages(self, tool_role: str = "user") -> list[Message]:
        """Returns the chat messages: system, user, then assistant and tool turns in order."""
        out = [
            {"role": "system", "content": self.system_prompt},
            {"role": "user", "content": self.prompt},
        ]
        for turn in self.turns:
            out.append({"role": "assistant", "content": turn.text})
            if turn.observation:
                out.append({"role": tool_role, "content": turn.observation})
        return out

    def spans(self) -> tuple[Span, ...]:
        """Returns who wrote which characters of `text()`; together the spans cover it without a gap."""
        out: list[Span] = []
        at = 0
        pieces: list[tuple[str, Literal["policy", "environment"]]] = [(self.prompt, "environment")]
        for turn in self.turns:
            pieces += [(turn.text, "policy"), (turn.observation, "environment")]
        for piece, writer in pieces:
            if piece:
                out.append(Span(at, at + len(piece), writer))
                at += len(piece)
        return tuple(out)

    def text(self) -> str:
        """Returns the transcript without turn markers: prompt, then each turn and its observation."""
        return self.prompt + "".join(turn.text + turn.observation for turn in self.turns)

    def to_json(self) -> str:
        """Returns one line of JSON without the newline; it always encodes as UTF-8."""
        record = {"schema": SCHEMA, **asdict(self)}
        for turn in record["turns"]:
            for name in _SAMPLED:
                if turn[name] is None:  # most policies are no models; their lines stay as they always were
                    del turn[name]
        text = json.dumps(record, ensure_ascii=False)
        # A policy may write lone surrogates, which UTF-8 cannot hold; JSON's own escapes can.
        return json.dumps(record) if any("\ud800" <= c <= "\udfff" for c in text) else text

    @classmethod
    def from_json(cls, line: str) -> Trajectory:
        """Reads what `to_json` wrote.

        Raises:
            TrajectoryError: the line is no trajectory of this schema; the message says what is wrong.
        """
        try:
            raw = json.loads(line)
        except json.JSONDecodeError as e:
            raise TrajectoryError(f"not JSON: {e.msg} at character {e.pos}") from e
        except (ValueError, RecursionError) as e:  # a number of thousands of digits, brackets a thousand deep
            raise TrajectoryError(f"not JSON that can be read: {e}") from e
        if not isinstance(raw, dict) or raw.pop("schema", None) != SCHEMA:
            raise TrajectoryError(f"no record of schema {SCHEMA!r}; was the file written by another version?")
        try:
            turns = tuple(Turn(**_sampled(turn)) for turn in _listed(raw, "turns"))
            golden = tuple(_listed(raw, "golden_answers"))
            made = cls(turns=turns, golden_answers=golden, **raw)
        except (TypeError, KeyError, AttributeError) as e:
            raise TrajectoryError(f"fields do not fit schema {SCHEMA!r}: {e}") from e
        for record, kinds in ((made, _FIELDS), *((turn, _TURN_FIELDS) for turn in turns)):
            for name, kind in kinds.items():
                if not isinstance(value := getattr(record, name), kind):
                    raise TrajectoryError(f"fields do not fit schema {SCHEMA!r}: {name} is {value!r:.80}")
        if not all(isinstance(answer, str) for answer in golden):
            raise TrajectoryError(f"fields do not fit schema {SCHEMA!r}: golden_answers is {golden!r:.80}")
        return made


_SAMPLED = ("token_ids", "logprobs", "finish_reason")


def _listed(raw: dict[str, Any], name: str) -> list[Any]:
    """Takes a list out of a record; a text or an object could be gone through as well, and would be read as another."""
    values = raw.pop(name)
    if not isinstance(values, list):
        raise TypeError(f"{name} is {values!r:.80}")
    return values


def _sampled(turn: object) -> dict[str, Any]:
    """Returns a turn's fields with lists of numbers as tuples."""
    if not isinstance(turn, dict):
        raise TypeError(f"a turn is {turn!r:.80}")
    fields = dict(turn)
    for name, kinds in (("token_ids", int), ("logprobs", (int, float))):
        if isinstance(values := fields.get(name), list):
            if not all(isinstance(value, kinds) for value in values):
                raise TypeError(f"{name} is {values!r:.80}")
            fields[name] = tuple(values)
    return fields


_TEXT_OR_NONE = (str, NoneType)
_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "question_id": str,
    "question": str,
    "action_format": str,
    "system_prompt": str,
    "prompt": str,
    "finish_reason": str,
    "answer": _TEXT_OR_NONE,
    "reward": (int, float),
    "reward_valid": bool,
    "breakdown": dict,
    "error": _TEXT_OR_NONE,
    "metadata": dict,
}
_TURN_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "text": str,
    "kind": str,
    "observation": str,
    "command": _TEXT_OR_NONE,
    "exit_code": (int, NoneType),
    "output_truncated": bool,
    "timed_out": bool,
    "refused": _TEXT_OR_NONE,
    "token_ids": (tuple, NoneType),
    "logprobs": (tuple, NoneType),
    "finish_reason": _TEXT_OR_NONE,
}


def read_trajectories(path: str | os.PathLike[str]) -> Iterator[Trajectory]:
    """Reads a trajectory file line by line.

    Raises:
        TrajectoryError: the file is missing or a line is bad; names file and line.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8", newline="\n") as f:
            for number, line in enumerate(f, 1):
                try:
                    yield Trajectory.from_json(line)
                except TrajectoryError as e:
                    raise TrajectoryError(f"{path}, line {number}: {e}") from e
    except FileNotFoundError as e:
        raise TrajectoryError(f"{path}: no such file; write one with 'grepseek rollout --out DIR'") from e
    except UnicodeDecodeError as e:
        raise TrajectoryError(f"{path}: not UTF-8 ({e.reason} at byte {e.start})") from e


class TrajectoryWriter:
    """Appends trajectories to a file, a whole line at a time.

    An unfinished last line, left by a crash or a full disk, is cut off when the file is opened and when a write fails.
    One writer at a time has the file: two would write over each other's lines.

    Raises:
        TrajectoryError: another writer has the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise TrajectoryError(
                f"{self.path} is being written by another run; wait until it has ended, or choose another folder"
            ) from None
        except OSError:
            self.close()
            raise
        self._end = self._whole_lines()
        os.ftruncate(self._fd, self._end)

    def _whole_lines(self) -> int:
        size = os.fstat(self._fd).st_size
        at = size
        while at > 0:
            start = max(0, at - (1 << 16))
            found = os.pread(self._fd, at - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            at = start
        return 0

    def write(self, trajectory: Trajectory) -> None:
        """Appends one line.

        Raises:
            OSError: see `append`.
        """
        self.append(trajectory.to_json())

    def append(self, line: str) -> None:
        """Appends a line of any record, given without its newline.

        Raises:
            OSError: the disk is full or the file cannot be written; the lines before stay whole.
        """
        data = memoryview((line + "\n").encode())
        at = self._end
        try:
            while data:
                done = os.pwrite(self._fd, data, at)
                data, at = data[done:], at + done
        except OSError as e:
            os.ftruncate(self._fd, self._end)
            raise OSError(e.errno, f"{e.strerror}; the lines before are whole", str(self.path)) from e
        self._end = at

    def close(self) -> None:
        """Closes the file; calling it again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
