"""Which options of a chat model decide what it writes: what a run's manifest has to hold besides the model's name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["turn_options"]


def turn_options(model: type, given: Mapping[str, Any], *, leave_out: Collection[str]) -> dict[str, Any]:
    """Returns the options that are not at their defaults, as JSON values, for `ChatModel.options`.

    Defaults are left out, so that a manifest from before an option was recorded is one of its default.

    Args:
        model: class of the model; its keywords are the options.
        given: their values; more than those may be in it.
        leave_out: options that decide where, how fast or how patiently a turn is made, or that the name tells already.
            Every other one is kept, so that an option that is added later cannot be forgotten.
    """
    found = {}
    for name, parameter in inspect.signature(model).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or name in leave_out:
            continue
        value = _plain(given[name])
        if value != _plain(parameter.default):
            found[name] = value
    return found


def _plain(value: Any) -> Any:
    """Returns what JSON makes of a value; an empty list or object is as good as none."""
    plain = json.loads(json.dumps(value, default=_known))
    return None if plain in ([], {}) else plain


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return sorted(value) if isinstance(value, AbstractSet) else str(value)
