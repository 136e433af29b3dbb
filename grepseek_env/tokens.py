"""Episodes as token ids: the one place that renders turns with a chat template and says who wrote which token.

A chat template is taken apart once, into the text around each message, so that an episode grows by pieces: the opening,
what the policy sampled, the text from there to its next turn. Sampled ids are kept as they are and never tokenised
again; each piece of the environment is tokenised alone. That equals the full template only for a template whose
rendering of a longer chat starts with the rendering of a shorter one, which is checked when it is taken apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from grepseek_env.actions import get_action_format
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from grepseek_env.trajectory import Trajectory

__all__ = ["CHATML", "ChatTokens", "TokenContext", "TokenSpan", "TokenTrajectory", "template_fault"]

# A prefix-stable template in the layout of ChatML: every message as it is, nothing added, nothing stripped.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Stand-ins for contents: a thought, since some templates drop thoughts, and words that no template holds.
_SYSTEM, _USER, _FIRST, _SEEN, _SECOND, _LAST = (
    "zqsystem",
    "zquser",
    "<think>zqthought</think>\nzqfirst",
    "zqseen",
    "<think>zqthought</think>\nzqsecond",
    "zqlast",
)
_REMEDY = (
    "; give a prefix-stable template, such as chat_template='chatml' where the model knows the tokens of ChatML "
    "(grepseek_env.tokens.CHATML)"
)


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Half-open range of an episode's tokens with the side that wrote it.

    Attributes:
        start: index of the first token.
        end: index after the last.
        writer: "policy" or "environment"; the opening is the environment's.
        turn: number of the policy turn, from 0; the opening has -1, an observation the number of its turn.
    """

    start: int
    end: int
    writer: Literal["policy", "environment"]
    turn: int


@dataclass(frozen=True, slots=True)
class TokenTrajectory:
    """An episode as token ids.

    Attributes:
        ids: the whole episode.
        mask: one flag a token: the policy wrote it.
        spans: who wrote which range; together they cover `ids` without a gap.
        logprobs: one value a token, as sampled; 0.0 where the policy did not write it. None where any was not recorded.
    """

    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    spans: tuple[TokenSpan, ...]
    logprobs: tuple[float, ...] | None = None

    def cut(self, length: int) -> TokenTrajectory:
        """Returns the first `length` tokens; a span that goes on behind them is cut, one that starts there dropped."""
        if length < 0:
            raise ConfigError(f"length is {length}; it must be at least 0")
        return TokenTrajectory(
            self.ids[:length],
            self.mask[:length],
            tuple(
                TokenSpan(s.start, min(s.end, length), s.writer, s.turn)
                for s in self.spans
                if s.start < min(length, s.end)
            ),
            None if self.logprobs is None else self.logprobs[:length],
        )


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The text around messages: `after` an assistant message up to the next content, `before` the next turn."""

    after: Mapping[str, str]
    before: str


def template_fault(tokenizer: Any, *, tool_role: str = "user") -> str | None:
    """Says why a tokenizer's chat template cannot be used turn by turn, or returns None where it can."""
    try:
        _take_apart(tokenizer, (tool_role,))
    except ConfigError as e:
        return str(e)
    return None


def _render(tokenizer: Any, messages: Sequence[Mapping[str, str]], *, prompt: bool) -> str:
    from jinja2 import TemplateError  # noqa: PLC0415 - comes with chat templates, which are optional

    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=prompt))
    except (TemplateError, ValueError) as e:
        raise ConfigError(f"the tokenizer's chat template cannot render this chat: {e}{_REMEDY}") from e


def _take_apart(tokenizer: Any, roles: Iterable[str]) -> _Pieces:
    after: dict[str, str] = {}
    before = ""
    for role in roles:
        chat = [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": _USER},
            {"role": "assistant", "content": _FIRST},
            {"role": role, "content": _SEEN},
            {"role": "assistant", "content": _SECOND},
            {"role": role, "content": _LAST},
        ]
        opening, longer, longest = (_render(tokenizer, chat[:n], prompt=True) for n in (2, 4, 6))
        for earlier, later, content in ((opening, longer, _FIRST), (longer, longest, _SECOND)):
            if not later.startswith(earlier + content):
                raise ConfigError(
                    "the tokenizer's chat template is not prefix-stable: with another turn it renders the turns before "
                    "it differently (it strips thoughts, or writes the start of an assistant message otherwise than "
                    f"its generation prompt), so tokens that were sampled would not be those that are read{_REMEDY}"
                )
        rest, last = longer[len(opening + _FIRST) :], longest[len(longer + _SECOND) :]
        head, _, tail = rest.partition(_SEEN)
        if last != head + _LAST + tail:
            raise ConfigError(
                f"the tokenizer's chat template renders {role!r} messages differently from turn to turn{_REMEDY}"
            )
        after[role], before = head, tail
    return _Pieces(after, before)


class ChatTokens:
    """Renders the messages of an episode as token ids with a tokenizer's chat template.

    Args:
        tokenizer: of transformers, with a chat template.
        chat_template: text of a template to use in its place; "chatml" names `CHATML`.
        roles: roles that an observation may have.

    Raises:
        ConfigError: there is no template, or it cannot be used turn by turn; the message says why.
    """

    def __init__(self, tokenizer: Any, *, chat_template: str | None = None, roles: Sequence[str] = ("user",)) -> None:
        if chat_template is not None:
            tokenizer = _with_template(tokenizer, chat_template)
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(f"the tokenizer has no chat template{_REMEDY}")
        self.tokenizer = tokenizer
        self._pieces = _take_apart(tokenizer, roles)
        special = sorted(set(tokenizer.all_special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special))) if special else None
        self._plain: Callable[[str], list[int]] = _plain_encoder(tokenizer)
        closing = self._encode(next(iter(self._pieces.after.values())))
        if not closing:
            raise ConfigError(f"the tokenizer's chat template writes nothing after an assistant message{_REMEDY}")
        self.end_token: int = closing[0]
        self._check_ids(roles[0])

    @classmethod
    def load(cls, path: str, *, chat_template: str | None = None, roles: Sequence[str] = ("user",)) -> ChatTokens:
        """Loads a tokenizer of transformers from a folder or by name.

        Raises:
            ConfigError: transformers is missing, nothing can be loaded from there, or the template cannot be used.
        """
        try:
            from transformers import AutoTokenizer  # noqa: PLC0415 - optional, and slow to import
        except ImportError as e:
            raise ConfigError(
                f"tokenizer is {path!r}, which needs transformers: pip install 'grepseek-env[tokenizers]'"
            ) from e
        try:
            tokenizer = AutoTokenizer.from_pretrained(path)
        except (OSError, ValueError, ImportError) as e:
            first_line = str(e).strip().partition("\n")[0]
            raise ConfigError(f"no tokenizer {path!r} can be loaded ({first_line}); give the folder of one") from e
        return cls(tokenizer, chat_template=chat_template, roles=roles)

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Returns the ids up to where the policy's first turn starts.

        Text of a control token in a message is ordinary text.
        """
        if not self._holds_special(m["content"] for m in messages):
            return self._encode(_render(self.tokenizer, messages, prompt=True))
        stand_ins = [f"zqcontent{i}zq" for i in range(len(messages))]
        chat = [{"role": m["role"], "content": s} for m, s in zip(messages, stand_ins, strict=True)]
        parts: list[tuple[str, bool]] = []
        rest = _render(self.tokenizer, chat, prompt=True)
        for message, stand_in in zip(messages, stand_ins, strict=True):
            head, _, rest = rest.partition(stand_in)
            parts += [(head, True), (message["content"], False)]
        return self._encode_parts([*parts, (rest, True)])

    def assistant(self, text: str) -> list[int]:
        """Returns the ids of a turn that was not sampled here, with the token that ends it."""
        return [*self._encode_parts([(text, False)]), self.end_token]

    def observation(self, text: str, *, role: str = "user", ended: bool = False) -> list[int]:
        """Returns the ids from the end of a turn to the start of the next: its closing, the observation, the opening.

        Args:
            text: the observation.
            role: its chat role.
            ended: the sampled ids already hold the token that ends a turn.

        Raises:
            ConfigError: the role was not among `roles`.
        """
        if role not in self._pieces.after:
            raise ConfigError(
                f"role is {role!r}; this renderer was made for {', '.join(map(repr, self._pieces.after))}"
            )
        parts = [(self._pieces.after[role], True), (text, False), (self._pieces.before, True)]
        ids = self._encode_parts(parts)
        return ids[1:] if ended else ids

    def observation_text(self, text: str, *, role: str = "user") -> str:
        """Returns what `observation` tokenises, as text: for trainers that append text to a sampled turn."""
        return self._pieces.after[role] + text + self._pieces.before

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, control tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def trajectory(self, trajectory: Trajectory) -> TokenTrajectory:
        """Returns a recorded episode as token ids: sampled ids where the record has them, else the turns tokenised.

        A turn that is tokenised here ends with the end-of-turn token, which then counts as the policy's: it is what
        supervised training has to teach.
        """
        role = get_action_format(trajectory.action_format).tool_role
        context = TokenContext(self, role=role)
        context.start(trajectory.messages(role)[:2])
        for turn in trajectory.turns:
            ids = getattr(turn, "token_ids", None)
            if ids is None:
                context.sampled(self.assistant(turn.text))
            else:
                context.sampled(ids, getattr(turn, "logprobs", None))
            if turn.observation and turn is not trajectory.turns[-1]:
                context.observed(turn.observation)
        return context.trajectory()

    def _holds_special(self, texts: Iterable[str]) -> bool:
        return self._special is not None and any(self._special.search(text) for text in texts)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _encode_parts(self, parts: Sequence[tuple[str, bool]]) -> list[int]:
        """Tokenises the parts as one text; control tokens are read in those that the flag marks as the template's."""
        if not self._holds_special(text for text, template in parts if not template):
            return self._encode("".join(text for text, _ in parts))
        ids: list[int] = []
        run = ""
        for text, template in parts:
            at = 0
            for found in self._special.finditer(text) if template and self._special else ():
                ids += self._plain(run + text[at : found.start()])
                ids += self._encode(found.group())
                run, at = "", found.end()
            run += text[at:]
        return ids + self._plain(run)

    def _check_ids(self, role: str) -> None:
        """Compares pieces tokenised one by one with the template tokenised as a whole."""
        chat = [
            {"role": "system", "content": "Search."},
            {"role": "user", "content": "Query: Who was it?"},
            {"role": "assistant", "content": "<think>I look.</think>\n<tool_call>{}</tool_call>"},
            {"role": role, "content": "<tool_response>\nline 1\n</tool_response>"},
        ]
        context = TokenContext(self, role=role)
        context.start(chat[:2])
        context.sampled(self.assistant(chat[2]["content"]))
        context.observed(chat[3]["content"])
        whole = self._encode(_render(self.tokenizer, chat, prompt=True))
        if list(context.ids) != whole:
            at = next((i for i, (a, b) in enumerate(zip(context.ids, whole, strict=False)) if a != b), len(whole))
            raise ConfigError(
                "the tokenizer does not tokenise a chat turn by turn as it does the whole chat: they differ at token "
                f"{at}, near {self.tokenizer.decode(whole[max(0, at - 3) : at + 3])!r}{_REMEDY}"
            )


class TokenContext:
    """An episode's token ids as they grow.

    Args:
        tokens: renders messages.
        role: chat role of observations.
    """

    def __init__(self, tokens: ChatTokens, *, role: str = "user") -> None:
        self._tokens = tokens
        self._role = role
        self._ids: list[int] = []
        self._spans: list[TokenSpan] = []
        self._logprobs: list[float] | None = []
        self._turn = -1

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids so far: what the next turn is sampled after."""
        return tuple(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def start(self, messages: Sequence[Mapping[str, str]]) -> None:
        """Takes the messages before the policy's first turn."""
        self._ids, self._spans, self._logprobs, self._turn = [], [], [], -1
        self._add(self._tokens.opening(messages), "environment", None)

    def sampled(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Takes a turn as it was sampled.

        Raises:
            ConfigError: there are not as many log-probabilities as ids.
        """
        if logprobs is not None and len(logprobs) != len(ids):
            raise ConfigError(f"{len(logprobs)} log-probabilities for {len(ids)} token ids")
        self._turn += 1
        if logprobs is None and ids:
            self._logprobs = None
        self._add(ids, "policy", logprobs)

    def observed(self, text: str) -> None:
        """Takes the observation that follows the newest turn."""
        self._add(self._tokens.observation(text, role=self._role, ended=self.ended), "environment", None)

    @property
    def ended(self) -> bool:
        """Tells whether the newest turn was ended by its own end-of-turn token."""
        last = self._spans[-1] if self._spans else None
        return last is not None and last.writer == "policy" and self._ids[-1] == self._tokens.end_token

    def trajectory(self) -> TokenTrajectory:
        """Returns the episode so far."""
        mask = [False] * len(self._ids)
        for span in self._spans:
            if span.writer == "policy":
                mask[span.start : span.end] = [True] * (span.end - span.start)
        logprobs = None if self._logprobs is None else tuple(self._logprobs)
        return TokenTrajectory(self.ids, tuple(mask), tuple(self._spans), logprobs)

    def _add(
        self, ids: Sequence[int], writer: Literal["policy", "environment"], logprobs: Sequence[float] | None
    ) -> None:
        start = len(self._ids)
        self._ids += ids
        if ids:
            self._spans.append(TokenSpan(start, len(self._ids), writer, self._turn))
        if self._logprobs is not None:
            self._logprobs += [0.0] * len(ids) if logprobs is None else logprobs


def _with_template(tokenizer: Any, template: str) -> Any:
    import copy  # noqa: PLC0415

    own = copy.copy(tokenizer)
    own.chat_template = CHATML if template == "chatml" else template
    return own


def _plain_encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Returns text -> ids in which the text of a control token is ordinary text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda text: list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
    own = type(backend).from_str(backend.to_str())  # the user's tokenizer keeps its settings
    own.no_truncation()
    own.no_padding()
    own.encode_special_tokens = True
    return lambda text: own.encode(text, add_special_tokens=False).ids
