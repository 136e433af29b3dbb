"""Expressions of awk programs: the lower half of the reader in `awk_script`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grepseek_env.commands.awk_lexer import Kind, tokens
from grepseek_env.commands.awk_tree import Node, NodeKind
from grepseek_env.commands.script import ScriptProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from grepseek_env.commands.awk_lexer import Token

__all__ = ["ExpressionReader"]

MAX_DEPTH = 32
"""Levels of nesting that are read; the reader calls itself for each."""
ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "^="})
COMPARISONS = frozenset({"<", "<=", "==", "!=", ">", ">="})
TARGETS = frozenset({NodeKind.VARIABLE, NodeKind.ELEMENT, NodeKind.FIELD})
OPERAND_KINDS = frozenset({Kind.NUMBER, Kind.STRING, Kind.NAME, Kind.CALL, Kind.BUILTIN})


class ExpressionReader:
    """Reads tokens from left to right; every method that reads moves `at` behind what it has read."""

    def __init__(self, program: str) -> None:
        self.tokens = tokens(program)
        self.at = 0
        self.depth = 0
        self.in_print = False  # > would redirect here
        self.no_in = False  # `in` belongs to the for around
        self.defined = frozenset(
            self.tokens[i + 1].text
            for i in range(len(self.tokens) - 1)
            if self.tokens[i].text == "function" and self.tokens[i].kind is Kind.WORD
        )

    # Tokens

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self.at]

    def _is(self, *signs: str) -> bool:
        return self.token.kind is Kind.SIGN and self.token.text in signs

    def _word(self, *words: str) -> bool:
        return self.token.kind is Kind.WORD and self.token.text in words

    def _take(self) -> Token:
        token = self.token
        self.at += token.kind is not Kind.END
        return token

    def _expect(self, sign: str) -> None:
        if not self._is(sign):
            raise self._problem(f"{sign} is missing in the awk program")
        self._take()

    def _lines(self) -> None:
        while self.token.kind is Kind.NEWLINE:
            self._take()

    def _problem(self, what: str = "", instead: str = "") -> ScriptProblem:
        token = self.token
        shown = "its end" if token.kind is Kind.END else "this"
        return ScriptProblem(
            token.start,
            max(token.end, token.start + 1),
            what or f"the awk program cannot be read from {shown} on",
            instead or "check the program, or use rg, cut or sed",
        )

    def _nested(self, read: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._problem("the awk program is nested too deeply", "write it in smaller steps")
        try:
            return read()
        finally:
            self.depth -= 1

    def _inside(self, read: Callable[[], Node]) -> Node:
        """Reads between parentheses or brackets of an expression, where > compares and `in` is plain."""
        saved = self.in_print, self.no_in
        self.in_print = self.no_in = False
        try:
            return read()
        finally:
            self.in_print, self.no_in = saved

    # Expressions, from what binds least

    def _expression(self) -> Node:
        return self._nested(self._assignment)

    def _assignment(self) -> Node:
        left = self._conditional()
        if not self._is(*ASSIGNMENTS):
            return left
        if left.kind not in TARGETS:
            raise self._problem(
                "only a variable, an element or a field can be set in awk", "put comparisons in parentheses"
            )
        sign = self._take().text
        return Node(NodeKind.ASSIGN, sign, (left, self._expression()))

    def _conditional(self) -> Node:
        test = self._either()
        if not self._is("?"):
            return test
        self._take()
        yes = self._expression()
        if not self._is(":"):
            raise self._problem(": is missing after ? in the awk program")
        self._take()
        return Node(NodeKind.SHORT, "?", (test, yes, self._expression()))

    def _either(self) -> Node:
        return self._chain(self._both, "||")

    def _both(self) -> Node:
        return self._chain(self._member, "&&")

    def _chain(self, read: Callable[[], Node], sign: str) -> Node:
        parts = [read()]
        while self._is(sign):
            self._take()
            self._lines()
            parts.append(read())
        return parts[0] if len(parts) == 1 else Node(NodeKind.SHORT, sign, tuple(parts))

    def _member(self) -> Node:
        node = self._matching()
        if self._word("in") and not self.no_in:
            self._take()
            node = Node(NodeKind.MEMBER, self._array(), node.parts if node.kind is NodeKind.GROUP else (node,))
        if node.kind is NodeKind.GROUP and (not node.parts or (len(node.parts) > 1 and not self.in_print)):
            raise self._problem(
                "a list in parentheses has no use here in awk", "a list is for print, or for (a, b) in x"
            )
        return node

    def _matching(self) -> Node:
        return self._binary(self._comparison, "~", "!~")

    def _comparison(self) -> Node:
        node = self._joined()
        if self._is(*COMPARISONS) and not (self.in_print and self._is(">")):
            if self._is("<") and _reads(node):
                raise self._problem(
                    "awk can read no other file",
                    "getline without < reads the next line; put it in parentheses to compare",
                )
            sign = self._take().text
            node = Node(NodeKind.OPERATION, sign, (node, self._joined()))
            if self._is(*COMPARISONS) and not (self.in_print and self._is(">")):
                raise self._problem("two comparisons in a row", "put one of them in parentheses")
        return node

    def _joined(self) -> Node:
        parts = [self._sum()]
        while self.token.kind in OPERAND_KINDS or self._is("$", "(", "++", "--"):
            parts.append(self._sum())
        return parts[0] if len(parts) == 1 else Node(NodeKind.OPERATION, " ", tuple(parts))

    def _sum(self) -> Node:
        return self._binary(self._product, "+", "-")

    def _product(self) -> Node:
        return self._binary(self._signed, "*", "/", "%")

    def _binary(self, read: Callable[[], Node], *signs: str) -> Node:
        parts = [read()]
        sign = self.token.text
        while self._is(*signs):
            self._take()
            parts.append(read())
        return parts[0] if len(parts) == 1 else Node(NodeKind.OPERATION, sign, tuple(parts))

    def _signed(self) -> Node:
        if self._is("!", "-", "+"):
            sign = self._take().text
            return Node(NodeKind.OPERATION, sign, (self._nested(self._signed),))
        return self._power()

    def _power(self) -> Node:
        base = self._stepped()
        if not self._is("^"):
            return base
        self._take()
        return Node(NodeKind.OPERATION, "^", (base, self._nested(self._signed)))

    def _stepped(self) -> Node:
        if self._is("++", "--"):
            sign = self._take().text
            target = self._primary()
            if target.kind not in TARGETS:
                raise self._problem(f"{sign} needs a variable in awk")
            return Node(NodeKind.STEP, sign, (target,))
        node = self._primary()
        if self._is("++", "--") and node.kind in TARGETS:
            return Node(NodeKind.STEP, self._take().text, (node,))
        return node

    def _primary(self) -> Node:
        token = self.token
        match token.kind, token.text:
            case Kind.NUMBER, _:
                return Node(NodeKind.NUMBER, self._take().text)
            case Kind.STRING, _:
                return Node(NodeKind.STRING, self._take().text)
            case Kind.REGEX, _:
                return Node(NodeKind.REGEX, self._take().text)
            case Kind.SIGN, "$":
                self._take()
                inner = self._nested(self._stepped if self._is("++", "--") else self._primary)
                return Node(NodeKind.FIELD, parts=(inner,))
            case Kind.SIGN, "-" | "+" | "!":
                return self._nested(self._signed)
            case Kind.SIGN, "(":
                return self._nested(self._group)
            case Kind.NAME, name if name not in self.defined:
                self._take()
                return (
                    Node(NodeKind.ELEMENT, name, self._subscripts()) if self._is("[") else Node(NodeKind.VARIABLE, name)
                )
            case Kind.CALL, name if name in self.defined:
                self._take()
                return Node(NodeKind.CALL, name, self._arguments())
            case Kind.CALL, name:
                raise self._problem(f"awk has no function {name} here", "put a blank before ( to join texts")
            case Kind.BUILTIN, name:
                self._take()
                if not self._is("(") and name != "length":
                    raise self._problem(f"( is missing after {name} in the awk program")
                return Node(NodeKind.BUILTIN, name, self._arguments() if self._is("(") else ())
            case Kind.WORD, "getline":
                return self._getline()
            case _:
                raise self._problem()

    def _array(self) -> str:
        if self.token.kind is not Kind.NAME:
            raise self._problem("the name of an array is missing in the awk program")
        return self._take().text

    def _getline(self) -> Node:
        self._take()
        has_target = self.token.kind is Kind.NAME or self._is("$")
        target = (self._primary(),) if has_target else ()
        if self._is("<"):
            raise self._problem("awk can read no other file", "getline without < reads the next line")
        return Node(NodeKind.GETLINE, parts=target)

    def _group(self) -> Node:
        return self._inside(lambda: Node(NodeKind.GROUP, parts=self._list("(", ")")))

    def _arguments(self) -> tuple[Node, ...]:
        return self._inside(lambda: Node(NodeKind.GROUP, parts=self._list("(", ")"))).parts

    def _subscripts(self) -> tuple[Node, ...]:
        # Some awks still take > for a redirection between brackets, so `in_print` stays.
        saved, self.no_in = self.no_in, False
        parts = self._list("[", "]")
        self.no_in = saved
        if not parts:
            raise self._problem("a subscript is missing in the awk program")
        return parts

    def _list(self, opening: str, closing: str) -> tuple[Node, ...]:
        self._expect(opening)
        parts: list[Node] = []
        while not self._is(closing):
            parts.append(self._expression())
            if not self._is(closing):
                self._expect(",")
                self._lines()
        self._take()
        return tuple(parts)


def _reads(node: Node) -> bool:
    """Whether a getline outside parentheses is part of an expression: a < after it would name its file."""
    if node.kind is NodeKind.GETLINE:
        return True
    return node.kind is NodeKind.OPERATION and any(_reads(part) for part in node.parts)
