"""Options of generated worlds, the named presets, and how both are written in a name."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "GENERATOR_VERSION",
    "PRESETS",
    "QUESTION_KINDS",
    "SPLITS",
    "WORLD_OPTIONS",
    "Preset",
    "WorldConfig",
    "parse_size",
    "world_config",
]

# Part of every cache key: raise it whenever a byte of any corpus or question changes.
GENERATOR_VERSION = 2
SPLITS = ("train", "test")
QUESTION_KINDS = ("1-hop", "2-hop", "3-hop", "4-hop", "comparison", "yes-no", "date", "number")


@dataclass(frozen=True, slots=True)
class WorldConfig:
    r"""What a generated world is like. Equal configs give equal bytes, everywhere.

    Attributes:
        seed: another seed gives other names, facts, texts and questions.
        passages: size of the corpus; what comes out is within half a country of it (some 20 passages), or exact
            where background fills the rest.
        style: "wiki" writes passages of several facts among other sentences; "facts" writes one fact a passage about
            fewer relations, so that trajectories stay short enough for a tiny model.
        names: "rich" makes names of many shapes; "regular" makes words of two syllables out of 120, which a small
            tokeniser splits evenly.
        titles: begin each passage with its quoted title and a newline, as the reference corpus does.
        words: how many words a passage of style "wiki" is filled up to.
        paraphrase: how often, from 0 to 1, a fact or a question is worded otherwise than in the plainest way.
        accents: share of name words with an accented letter or an apostrophe.
        aliases: share of people, cities and companies with a second name, which their own passage tells, and how
            often other passages then use it (or leave out the accents).
        background: share of passages that are calibrated text without facts (see `CalibratedText`), which makes large
            worlds fast to write.
        test_fraction: share of the countries held out for the test split, with everything in them: no entity occurs
            in questions of both splits.
        kinds: question kinds to draw from, a subset of `QUESTION_KINDS`; empty takes all that the style has, and
            style "facts" has the first two.
        questions: how many questions a split has where no limit is given; any index may be asked for.
        escape_non_ascii: write non-ASCII letters as ``\u00e9``, as the reference corpus does. Off by default, since
            ``rg -F 'Café'`` then finds nothing.
    """

    seed: int = 0
    passages: int = 300
    style: Literal["wiki", "facts"] = "wiki"
    names: Literal["rich", "regular"] = "rich"
    titles: bool = True
    words: int = 95
    paraphrase: float = 0.5
    accents: float = 0.0
    aliases: float = 0.0
    background: float = 0.0
    test_fraction: float = 0.25
    kinds: tuple[str, ...] = ()
    questions: int = 400
    escape_non_ascii: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        for name, least in (("seed", 0), ("passages", 1), ("words", 1), ("questions", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"WorldConfig.{name} is {value!r}; it must be an integer of at least {least}")
        for name, below in (("paraphrase", 1.0), ("accents", 1.0), ("aliases", 1.0), ("background", 0.9999)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= below:
                raise ConfigError(f"WorldConfig.{name} is {value!r}; it must be a number from 0 to {below}")
            object.__setattr__(self, name, float(value))  # 1 and 1.0 are one config, with one key
        if not 0 < self.test_fraction < 1:
            raise ConfigError(f"WorldConfig.test_fraction is {self.test_fraction!r}; it must lie between 0 and 1")
        for name, choices in (("style", ("wiki", "facts")), ("names", ("rich", "regular"))):
            if getattr(self, name) not in choices:
                raise ConfigError(f"WorldConfig.{name} is {getattr(self, name)!r}; it must be one of {choices}")
        known = _STYLE_KINDS[self.style]
        if any(kind not in known for kind in self.kinds):
            raise ConfigError(f"WorldConfig.kinds is {self.kinds!r}; style {self.style!r} has {', '.join(known)}")

    @property
    def question_kinds(self) -> tuple[str, ...]:
        """The kinds that questions are drawn from."""
        return self.kinds or _STYLE_KINDS[self.style]

    def key(self) -> str:
        """Returns 16 hexadecimal digits that name the corpus of this config; a new generator version changes them."""
        values = {name: value for name, value in asdict(self).items() if name not in _QUESTIONS_ONLY}
        return _digest({"version": GENERATOR_VERSION, **values})


_STYLE_KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType({"wiki": QUESTION_KINDS, "facts": QUESTION_KINDS[:2]})
_QUESTIONS_ONLY = ("kinds", "questions")


def _digest(values: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Preset:
    """A named config."""

    config: WorldConfig
    description: str


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "tiny": Preset(WorldConfig(passages=300), "300 generated passages, 400 questions a split; the default"),
        "small": Preset(WorldConfig(passages=5_000, questions=2_000), "5,000 generated passages"),
        "medium": Preset(
            WorldConfig(passages=100_000, questions=10_000, accents=0.05, aliases=0.05),
            "100,000 generated passages, some names with accents or aliases",
        ),
        "large": Preset(
            WorldConfig(passages=5_000_000, questions=10_000, accents=0.05, aliases=0.05, background=0.9),
            "5 million passages (about 3 GB), nine in ten of them calibrated background text",
        ),
        "study": Preset(
            WorldConfig(
                passages=11_600,
                style="facts",
                names="regular",
                titles=False,
                paraphrase=0.0,
                questions=2_000,
            ),
            "11,600 one-fact passages with regular names, for training tiny models",
        ),
    }
)
WORLD_OPTIONS = tuple(field.name for field in fields(WorldConfig))

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_size(text: str) -> int:
    """Returns a number of bytes from text such as ``1.5GB``, ``64MiB`` or ``1000``.

    Raises:
        ConfigError: it is no size.
    """
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?\s*([A-Za-z]*)", text.strip())
    if match is None or match[3].lower() not in units:
        raise ConfigError(f"{text!r} is no size; write a number and one of {', '.join(filter(None, _UNITS))}")
    whole, part, unit = match[1], match[2] or "", match[3]
    return int(whole + part) * units[unit.lower()] // int("1" + "0" * len(part))


def _integer(text: str) -> int:
    match = re.fullmatch(r"(\d[\d_,]*)([kKM]?)", text)
    if match is None:
        raise ValueError(text)
    return int(re.sub("[_,]", "", match[1])) * {"": 1, "k": 10**3, "K": 10**3, "M": 10**6}[match[2]]


def _switch(text: str) -> bool:
    return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]


_READERS: Mapping[str, tuple[Callable[[str], object], str]] = MappingProxyType(
    {
        "int": (_integer, "an integer such as 5000 or 20M"),
        "bool": (_switch, "true or false"),
        "float": (float, "a number"),
        "tuple[str, ...]": (lambda text: tuple(text.split("+")), "names joined by +"),
    }
)


def world_config(name: str, options: Mapping[str, str]) -> WorldConfig:
    """Returns a preset's config with some fields set from text.

    Raises:
        ConfigError: no such preset or option, or a value that cannot work.
    """
    if name not in PRESETS:
        raise ConfigError(f"no world is named {name!r}{closest(name, list(PRESETS))}; worlds are {', '.join(PRESETS)}")
    types = {field.name: str(field.type) for field in fields(WorldConfig)}
    values: dict[str, object] = {}
    for key, text in options.items():
        if key not in types:
            known = ", ".join(WORLD_OPTIONS)
            raise ConfigError(f"world:{name} has no option {key!r}{closest(key, WORLD_OPTIONS)}; known: {known}")
        reader, wanted = _READERS.get(types[key], (str, "text"))
        try:
            values[key] = reader(text)
        except (ValueError, KeyError):
            raise ConfigError(f"world:{name}: option {key} is {text!r}; it must be {wanted}") from None
    return replace(PRESETS[name].config, **values)  # type: ignore[arg-type]
