"""What the readers of sed scripts, awk programs and tr sets share: the fault they report."""

from __future__ import annotations

__all__ = ["ScriptProblem", "bracket_open"]


class ScriptProblem(Exception):
    """Something in a script that is not offered or not understood.

    Attributes:
        start: index of its first character in the script.
        end: index after its last character.
        what: what is wrong.
        instead: what to write instead.
    """

    def __init__(self, start: int, end: int, what: str, instead: str) -> None:
        super().__init__(what)
        self.start = start
        self.end = end
        self.what = what
        self.instead = instead


def bracket_open(regex: str) -> bool:
    """Whether some reading of a regular expression ends inside [...].

    Programs disagree about backslashes and named classes between brackets, so every combination is tried.
    """
    return any(_open(regex, classes=c, escapes=e) for c in (False, True) for e in (False, True))


def _open(regex: str, *, classes: bool, escapes: bool) -> bool:
    index, size = 0, len(regex)
    while index < size:
        char = regex[index]
        index += 1
        if char == "\\":
            index += 1
        elif char == "[":
            index += regex[index : index + 1] == "^"
            first = True
            while index < size and (first or regex[index] != "]"):
                first = False
                if escapes and regex[index] == "\\":
                    index += 2
                elif classes and regex[index] == "[" and regex[index + 1 : index + 2] in {":", ".", "="}:
                    closing = regex.find(regex[index + 1] + "]", index + 2)
                    index = closing + 2 if closing >= 0 else index + 1
                else:
                    index += 1
            if index >= size:
                return True
            index += 1
    return False
