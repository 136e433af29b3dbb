"""A reader of awk programs: refuses what reads, writes or runs something, and what awks read differently.

The grammar is that of POSIX without redirection and pipes. A program passes only if it is read whole.
"""

from __future__ import annotations

from grepseek_env.commands.awk_expressions import ExpressionReader
from grepseek_env.commands.awk_lexer import Kind
from grepseek_env.commands.awk_tree import Node, NodeKind, Program, Rule

__all__ = ["read_awk"]

JUMPS = frozenset({"next", "nextfile", "exit", "return", "break", "continue"})


def read_awk(program: str) -> Program:
    """Reads a program.

    Raises:
        ScriptProblem: it does what is not offered, or cannot be read for certain.
    """
    return _Reader(program).program()


class _Reader(ExpressionReader):
    """Rules and statements."""

    # Rules

    def program(self) -> Program:
        rules: list[Rule] = []
        while True:
            while self.token.kind is Kind.NEWLINE or self._is(";"):
                self._take()
            if self.token.kind is Kind.END:
                break
            if self._word("function"):
                self._function()
            else:
                rules.append(self._rule())
        return Program(tuple(rules), tuple(sorted(self.defined)))

    def _function(self) -> None:
        self._take()
        name = self.token
        if name.kind is not Kind.CALL:
            raise self._problem("a function of the awk program has no name or no (")
        self._take()
        self._expect("(")
        while not self._is(")"):
            if self.token.kind is not Kind.NAME or self.token.text in self.defined:
                raise self._problem("a parameter of the awk program is no plain name")
            self._take()
            if not self._is(")"):
                self._expect(",")
                self._lines()
        self._take()
        self._lines()
        self._block()

    def _rule(self) -> Rule:
        if self._word("BEGIN", "END"):
            when = self._take().text
            if not self._is("{"):
                raise self._problem(f"{{ is missing after {when} of the awk program")
            return Rule(when, (), self._block())
        patterns: tuple[Node, ...] = ()
        if not self._is("{"):
            patterns = (self._expression(),)
            if self._is(","):
                self._take()
                self._lines()
                patterns = (*patterns, self._expression())
        if self._is("{"):
            return Rule("", patterns, self._block())
        if self.token.kind not in {Kind.NEWLINE, Kind.END} and not self._is(";"):
            raise self._problem()
        return Rule("", patterns, None)

    # Statements

    def _block(self) -> Node:
        return self._nested(self._block_body)

    def _block_body(self) -> Node:
        self._expect("{")
        parts: list[Node] = []
        while True:
            while self.token.kind is Kind.NEWLINE or self._is(";"):
                self._take()
            if self._is("}"):
                self._take()
                return Node(NodeKind.BLOCK, parts=tuple(parts))
            parts.append(self._statement())

    def _body(self) -> Node:
        """Reads what belongs to an if, else or loop: one statement, on the next line if need be."""
        self._lines()
        if self._is(";"):
            self._take()
            return Node(NodeKind.BLOCK)
        return self._nested(self._statement)

    def _statement(self) -> Node:
        token = self.token
        match token.kind, token.text:
            case Kind.SIGN, "{":
                return self._block()
            case Kind.WORD, "if":
                return self._if()
            case Kind.WORD, "while":
                self._take()
                return Node(NodeKind.LOOP, parts=(Node(NodeKind.BLOCK, parts=(self._condition(),)), self._body()))
            case Kind.WORD, "do":
                return self._do()
            case Kind.WORD, "for":
                return self._for()
            case _:
                node = self._simple()
                self._end()
                return node

    def _end(self) -> None:
        """Reads the end of a simple statement."""
        if self._is(";") or self.token.kind is Kind.NEWLINE:
            self._take()
        elif not self._is("}"):
            raise self._problem()

    def _condition(self) -> Node:
        self._expect("(")
        node = self._expression()
        self._expect(")")
        return node

    def _if(self) -> Node:
        self._take()
        condition = self._condition()
        then = self._body()
        before = self.at
        while self.token.kind is Kind.NEWLINE or self._is(";"):
            self._take()
        if not self._word("else"):
            self.at = before
            return Node(NodeKind.IF, parts=(condition, then))
        self._take()
        return Node(NodeKind.IF, parts=(condition, then, self._body()))

    def _do(self) -> Node:
        self._take()
        body = self._body()
        while self.token.kind is Kind.NEWLINE or self._is(";"):
            self._take()
        if not self._word("while"):
            raise self._problem("while is missing after do in the awk program")
        self._take()
        condition = self._condition()
        self._end()
        return Node(NodeKind.LOOP, parts=(Node(NodeKind.BLOCK), body, condition))

    def _for(self) -> Node:
        self._take()
        self._expect("(")
        once: list[Node] = []
        again: list[Node] = []
        if not self._is(";"):
            self.no_in = True
            first = self._simple()
            self.no_in = False
            if self._word("in") and first.kind is NodeKind.VARIABLE:
                self._take()
                array = self._array()
                self._expect(")")
                return Node(NodeKind.FOR_IN, array, (first, self._body()))
            once.append(first)
        self._expect(";")
        self._lines()
        if not self._is(";"):
            once.append(self._expression())
        self._expect(";")
        self._lines()
        if not self._is(")"):
            again.append(self._simple())
        self._expect(")")
        return Node(NodeKind.LOOP, parts=(Node(NodeKind.BLOCK, parts=tuple(once)), *again, self._body()))

    def _simple(self) -> Node:
        token = self.token
        match token.kind, token.text:
            case Kind.WORD, "print" | "printf":
                return self._print()
            case Kind.WORD, "delete":
                self._take()
                array = self._array()
                return Node(NodeKind.DELETE, array, self._subscripts() if self._is("[") else ())
            case Kind.WORD, word if word in JUMPS:
                self._take()
                ended = self._is(";", "}") or self.token.kind in {Kind.NEWLINE, Kind.END}
                if ended or word not in {"exit", "return"}:
                    return Node(NodeKind.JUMP, word)
                return Node(NodeKind.JUMP, word, (self._expression(),))
            case _:
                return self._expression()

    def _print(self) -> Node:
        word = self._take().text
        parts: list[Node] = []
        self.in_print = True
        while not (self._is(";", "}", ">") or self.token.kind in {Kind.NEWLINE, Kind.END}):
            parts.append(self._expression())
            if not self._is(","):
                break
            self._take()
            self._lines()
        self.in_print = False
        if self._is(">"):
            raise self._problem(
                "awk cannot write files here",
                "print without >: what is printed is returned; to compare, write parentheses: print (a > b)",
            )
        match parts:
            case [Node(kind=NodeKind.GROUP, parts=inner)]:
                parts = list(inner)
        return Node(NodeKind.PRINT, word, tuple(parts))
