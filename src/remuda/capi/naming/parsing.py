"""A parser from tokens to a syntax tree; :mod:`.rendering` evaluates it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import NoReturn

from remuda.kube.errors import go_quote

from . import lexing
from .lexing import Token

FUNCTIONS = frozenset(["and", "eq", "index", "len", "ne", "not", "or", "print", "printf", "println", "slice"])
_OTHER_FUNCTIONS = frozenset(["call", "ge", "gt", "html", "js", "le", "lt", "urlquery"])
_OPERANDS = frozenset(
    (
        lexing.BOOL,
        lexing.DOT,
        lexing.FIELD,
        lexing.IDENTIFIER,
        lexing.NUMBER,
        lexing.NIL,
        lexing.STRING,
        lexing.VARIABLE,
        lexing.OPEN,
    )
)


@dataclass(frozen=True, slots=True)
class Literal:
    position: int
    text: str
    value: str | int | bool | None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Dot:
    position: int

    def __str__(self) -> str:
        return "."


@dataclass(frozen=True, slots=True)
class Function:
    position: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Fields:
    """A path of fields, from the data or from the value in parentheses."""

    position: int
    names: tuple[str, ...]
    of: Pipeline | None = None

    def __str__(self) -> str:
        return ("" if self.of is None else f"({self.of})") + "".join(f".{name}" for name in self.names)


@dataclass(frozen=True, slots=True)
class Command:
    position: int
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return " ".join(f"({each})" if isinstance(each, Pipeline) else str(each) for each in self.operands)


@dataclass(frozen=True, slots=True)
class Pipeline:
    position: int
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.commands))


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    position: int
    pipeline: Pipeline

    def __str__(self) -> str:
        return f"{{{{{self.pipeline}}}}}"


@dataclass(frozen=True, slots=True)
class If:
    condition: Pipeline
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class _Mark:
    """An `end` or an `else`, which closes a list; `chained` when an `if` follows the `else` at once."""

    word: str
    chained: bool = False

    def __str__(self) -> str:
        return f"{{{{{self.word}}}}}"


Operand = Literal | Dot | Function | Fields | Pipeline
Node = Text | Action | If


def parse(template: str) -> tuple[Node, ...]:
    parser = _Parser(template, list(lexing.tokens(template)))
    return parser.whole()


@dataclass(slots=True)
class _Parser:
    template: str
    tokens: list[Token]
    at: int = 0
    # The last token read, whose line errors name, and the line where the current action began.
    seen: int = 0
    action: int = 0

    # --- tokens ------------------------------------------------------------------------------------------------------------

    def _peek(self) -> Token:
        at = min(self.at, len(self.tokens) - 1)
        self.seen = max(self.seen, at)
        return self.tokens[at]

    def _next(self) -> Token:
        token = self._peek()
        self.at += 1
        return token

    def _peek_word(self) -> Token:
        while self._peek().kind == lexing.SPACE:
            self.at += 1
        return self._peek()

    def _next_word(self) -> Token:
        self._peek_word()
        return self._next()

    def _problem(self, why: str) -> NameTemplateError:
        return unreadable(self.template, self.tokens[self.seen].line, why)

    def _fail(self, why: str) -> NoReturn:
        raise self._problem(why)

    def _unexpected(self, token: Token, context: str) -> NoReturn:
        if token.kind != lexing.ERROR:
            self._fail(f"unexpected {token} in {context}")
        began = "" if self.action in (0, token.line) else f" started at {NAME}:{self.action}"
        self._fail(f"{token}{began if not began or token.text.endswith(' action') else f' in action{began}'}")

    def _expect_end_of_action(self, context: str) -> None:
        token = self._next_word()
        if token.kind != lexing.RIGHT:
            self._unexpected(token, context)

    # --- text and actions --------------------------------------------------------------------------------------------------

    def whole(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while self._peek().kind != lexing.EOF:
            node = self._text_or_action()
            if isinstance(node, _Mark):
                self._fail(f"unexpected {node}")
            found.append(node)
        return tuple(found)

    def _list(self) -> tuple[tuple[Node, ...], _Mark]:
        found: list[Node] = []
        while self._peek_word().kind != lexing.EOF:
            node = self._text_or_action()
            if isinstance(node, _Mark):
                return tuple(found), node
            found.append(node)
        raise self._problem("unexpected EOF")

    def _text_or_action(self) -> Node | _Mark:
        token = self._next_word()
        if token.kind == lexing.TEXT:
            return Text(token.text)
        if token.kind != lexing.LEFT:
            self._unexpected(token, "input")
        self.action = token.line
        node = self._action()
        self.action = 0
        return node

    def _action(self) -> Node | _Mark:
        first = self._peek_word()
        if first.kind != lexing.KEYWORD:
            return Action(first.position, self._pipeline("command", lexing.RIGHT))
        self.at += 1
        match first.text:
            case "if":
                return self._if()
            case "end":
                self._expect_end_of_action("end")
                return _Mark("end")
            case "else":
                following = self._peek_word()
                if following.kind == lexing.KEYWORD and following.text == "if":
                    return _Mark("else", chained=True)
                self._expect_end_of_action("else")
                return _Mark("else")
        raise unsupported(self.template, first.text)

    def _if(self) -> If:
        condition = self._pipeline("if", lexing.RIGHT)
        then, mark = self._list()
        if mark.word == "end":
            return If(condition, then)
        if mark.chained:
            self.at += 1
            return If(condition, then, (self._if(),))
        otherwise, mark = self._list()
        if mark.word != "end":
            self._fail(f"expected end; found {mark}")
        return If(condition, then, otherwise)

    # --- pipelines ---------------------------------------------------------------------------------------------------------

    def _pipeline(self, context: str, end: str) -> Pipeline:
        position = self._peek_word().position
        commands: list[Command] = []
        while True:
            token = self._next_word()
            if token.kind == end:
                break
            if token.kind not in _OPERANDS:
                self._unexpected(token, context)
            self.at -= 1
            commands.append(self._command())
        if not commands:
            self._fail(f"missing value for {context}")
        for stage, command in enumerate(commands[1:], 2):
            if isinstance(command.operands[0], Literal | Dot):
                self._fail(f"non executable command in pipeline stage {stage}")
        return Pipeline(position, tuple(commands))

    def _command(self) -> Command:
        position = self._peek_word().position
        operands: list[Operand] = []
        while True:
            self._peek_word()
            if (operand := self._operand()) is not None:
                operands.append(operand)
            token = self._next()
            if token.kind == lexing.SPACE:
                continue
            if token.kind in (lexing.RIGHT, lexing.CLOSE):
                self.at -= 1
            elif token.kind != lexing.PIPE:
                self._unexpected(token, "operand")
            break
        if not operands:
            self._fail("empty command")
        return Command(position, tuple(operands))

    def _operand(self) -> Operand | None:
        term = self._term()
        if term is None or self._peek().kind != lexing.FIELD:
            return term
        position = self._peek().position
        steps: list[str] = []
        while self._peek().kind == lexing.FIELD:
            steps.append(self._next().text[1:])
        if isinstance(term, Fields):
            return Fields(position, (*term.names, *steps), term.of)
        if isinstance(term, Literal | Dot):
            self._fail(f"unexpected . after term {go_quote(str(term))}")
        if isinstance(term, Function):
            raise unsupported(self.template, f"a field of {term}")
        return Fields(position, tuple(steps), term)

    def _term(self) -> Operand | None:
        token = self._next_word()
        match token.kind:
            case lexing.IDENTIFIER:
                return self._function(token)
            case lexing.DOT:
                return Dot(token.position)
            case lexing.NIL:
                return Literal(token.position, "nil", None)
            case lexing.BOOL:
                return Literal(token.position, token.text, token.text == "true")
            case lexing.FIELD:
                return Fields(token.position, (token.text[1:],))
            case lexing.STRING | lexing.NUMBER:
                return self._literal(token)
            case lexing.OPEN:
                return self._pipeline("parenthesized pipeline", lexing.CLOSE)
            case lexing.VARIABLE:
                raise unsupported(self.template, f"the variable {token.text}")
        self.at -= 1
        return None

    def _function(self, token: Token) -> Function:
        if token.text in _OTHER_FUNCTIONS:
            raise unsupported(self.template, f"the function {token.text}")
        if token.text not in FUNCTIONS:
            self._fail(f"function {go_quote(token.text)} not defined")
        return Function(token.position, token.text)

    def _literal(self, token: Token) -> Literal:
        if token.text == ".":
            self._fail('illegal number syntax: "."')
        if token.text.startswith("`"):
            return Literal(token.position, token.text, token.text[1:-1])
        if token.kind == lexing.STRING and "\\" not in token.text:
            return Literal(token.position, token.text, token.text[1:-1])
        try:
            # Plain decimals and the escapes common to both languages are all that a name can need.
            value = ast.literal_eval(token.text)
        except (ValueError, SyntaxError):
            raise unsupported(self.template, token.text) from None
        if not isinstance(value, int if token.kind == lexing.NUMBER else str):
            raise unsupported(self.template, token.text)
        return Literal(token.position, token.text, value)


# --- errors ---------------------------------------------------------------------------------------------------------------
#
# Errors in a template of names, in the words of the Go library that upstream uses.

NAME = "template name generator"


class NameTemplateError(ValueError):
    """The template can't be read or filled in."""


def unreadable(template: str, line: int, why: str) -> NameTemplateError:
    return NameTemplateError(f"parsing template {go_quote(template)}: template: {NAME}:{line}: {why}")


def unsupported(template: str, what: str) -> NameTemplateError:
    return NameTemplateError(f"parsing template {go_quote(template)}: {what} is not supported in names of machines")


def unfit(template: str, position: int, node: str, why: str) -> NameTemplateError:
    before = template[:position]
    line, start = before.count("\n") + 1, before.rfind("\n") + 1
    column = len(before[start:].encode())
    return NameTemplateError(
        f"rendering template: template: {NAME}:{line}:{column}: executing {go_quote(NAME)} at <{node}>: {why}"
    )
