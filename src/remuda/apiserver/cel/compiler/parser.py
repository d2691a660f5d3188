"""Tokens to a syntax tree: an operator-precedence parser for the CEL grammar.

Each nesting level costs two Python frames, so that the grammar's own depth limit is reached long before Python's.
Syntax errors have the same texts as in Kubernetes. Macros are expanded while parsing (`macros`);
the checker handles names and types.
"""

from __future__ import annotations

from ..errors import NO_POSITION, Issues
from ..values import Uint
from . import lexer
from .lexer import EOF, Token, escape_text, tokenize, unquote
from .macros import MacroError, expand
from .syntax_tree import Call, Comprehension, Constant, Expr, Ident, ListExpr, Literal, MapEntry, MapExpr, Select, StructExpr

MAX_DEPTH = 250
MAX_CODE_POINTS = 100_000

_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_BINARY = {
    "<": (1, "_<_"),
    "<=": (1, "_<=_"),
    ">": (1, "_>_"),
    ">=": (1, "_>=_"),
    "==": (1, "_==_"),
    "!=": (1, "_!=_"),
    "in": (1, "@in"),
    "+": (2, "_+_"),
    "-": (2, "_-_"),
    "*": (3, "_*_"),
    "/": (3, "_/_"),
    "%": (3, "_%_"),
}
_STARTS = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
_STARTS_ARGS = _STARTS.replace("'(', ", "'(', ')', ")
_STARTS_OPTIONAL = _STARTS.replace("'!', ", "'!', '?', ")
_STARTERS = frozenset(
    {"[", "{", "(", ".", "-", "!", "true", "false", "null", lexer.FLOAT, lexer.INT, lexer.UINT, lexer.STRING, lexer.BYTES}
    | {lexer.IDENT}
)


class _GiveUp(Exception):
    """A syntax error without recovery; it is already reported."""


def parse(source: str, issues: Issues) -> Expr | None:
    """The tree of `source`, or None with the reasons in `issues`."""
    if len(source) > MAX_CODE_POINTS:
        message = f"expression code point size exceeds limit: size: {len(source)}, limit {MAX_CODE_POINTS}"
        issues.report(NO_POSITION, message)
        return None
    parser = _Parser(tokenize(source, issues), issues)
    try:
        tree = parser.whole()
    except _GiveUp:
        return None
    except RecursionError:
        issues.report(NO_POSITION, f"expression recursion limit exceeded: {MAX_DEPTH}")
        return None
    if issues:
        return None
    if _depth(tree) > MAX_DEPTH:
        issues.report(NO_POSITION, "max recursion depth exceeded")
        return None
    return tree


def _depth(tree: Expr) -> int:
    """The nesting depth of selections, calls and operators."""
    deepest = 0
    pending: list[tuple[Expr, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        if isinstance(node, Select):
            pending.append((node.operand, depth + 1))
        elif isinstance(node, Call):
            below = depth + (node.function not in ("_&&_", "_||_", "!_", "-_"))
            if node.target is not None:
                pending.append((node.target, below))
            pending.extend((arg, below) for arg in node.args)
        elif isinstance(node, ListExpr):
            pending.extend((element, depth) for element in node.elements)
        elif isinstance(node, MapExpr):
            for entry in node.entries:
                pending.append((entry.key, depth))
                pending.append((entry.value, depth))
        elif isinstance(node, StructExpr):
            pending.extend((value, depth) for _, value in node.fields)
        elif isinstance(node, Comprehension):
            pending.append((node.iter_range, depth + 1))
            pending.append((node.accu_init, depth + 1))
            pending.append((node.step, depth + 1))
            pending.append((node.result, depth + 1))
    return deepest


class _Parser:
    def __init__(self, tokens: list[Token], issues: Issues) -> None:
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]
        self.issues = issues
        self.depth = 0

    # --- tokens and errors

    def _next(self) -> Token:
        token = self.token
        if self.at < len(self.tokens) - 1:
            self.at += 1
            self.token = self.tokens[self.at]
        return token

    def _peek(self) -> Token:
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def _syntax(self, token: Token, message: str) -> None:
        self.issues.report(token.position, f"Syntax error: {message}")

    def _input(self) -> str:
        return f"'{escape_text(self.token.text)}'"

    def _expect(self, kind: str, expecting: str = "", insert_before: frozenset[str] = frozenset()) -> Token:
        if self.token.kind == kind:
            return self._next()
        expecting = expecting or (kind if kind in (EOF, lexer.IDENT) else f"'{kind}'")
        if self._peek().kind == kind and self.token.kind != EOF:
            self._syntax(self.token, f"extraneous input {self._input()} expecting {expecting}")
            self._next()
            return self._next()
        if self.token.kind in insert_before:
            self._syntax(self.token, f"missing {expecting} at {self._input()}")
            return self.token
        self._syntax(self.token, f"mismatched input {self._input()} expecting {expecting}")
        raise _GiveUp

    def _require_start(self, expecting: str = _STARTS) -> None:
        if self.token.kind in _STARTERS:
            return
        if self._peek().kind in _STARTERS and self.token.kind != EOF:
            self._syntax(self.token, f"extraneous input {self._input()} expecting {{{expecting}}}")
            self._next()
            return
        self._syntax(self.token, f"mismatched input {self._input()} expecting {{{expecting}}}")
        raise _GiveUp

    # --- expressions

    def whole(self) -> Expr:
        tree = self.expr()
        self._expect(EOF)
        return tree

    def expr(self, ternary: bool = True) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.issues.report(NO_POSITION, f"expression recursion limit exceeded: {MAX_DEPTH}")
            raise _GiveUp
        any_terms: list[Expr] = []
        any_ops: list[int] = []
        all_terms: list[Expr] = []
        all_ops: list[int] = []
        while True:
            values = [self.operand()]
            ops: list[tuple[int, str, int]] = []
            while (binary := _BINARY.get(self.token.kind)) is not None:
                while ops and ops[-1][0] >= binary[0]:
                    self._reduce(values, ops)
                ops.append((*binary, self._next().position))
                values.append(self.operand())
            while ops:
                self._reduce(values, ops)
            all_terms.append(values[0])
            if self.token.kind == "&&":
                all_ops.append(self._next().position)
                continue
            any_terms.append(_balance("_&&_", all_terms, all_ops, 0, len(all_ops) - 1))
            if self.token.kind != "||":
                break
            any_ops.append(self._next().position)
            all_terms, all_ops = [], []
        result = _balance("_||_", any_terms, any_ops, 0, len(any_ops) - 1)
        if ternary and self.token.kind == "?":
            position = self._next().position
            then = self.expr(ternary=False)
            self._expect(":")
            result = Call(position, "_?_:_", None, [result, then, self.expr()])
        self.depth -= 1
        return result

    @staticmethod
    def _reduce(values: list[Expr], ops: list[tuple[int, str, int]]) -> None:
        _, function, position = ops.pop()
        right = values.pop()
        values.append(Call(position, function, None, [values.pop(), right]))

    def operand(self) -> Expr:
        """Prefix operators, a primary, and its selections, indexes and calls."""
        prefix: Token | None = None
        odd = False
        if self.token.kind in ("!", "-"):
            prefix = self.token
            # A minus right before a number belongs to the number, unless other signs come first.
            while self.token.kind == prefix.kind and not (self.token is prefix and self._signed_number()):
                self._next()
                odd = not odd
        self._require_start()
        node = self._postfix(self._primary())
        if prefix is not None and odd:
            return Call(prefix.position, f"{prefix.kind}_", None, [node])
        return node

    def _signed_number(self) -> bool:
        return self.token.kind == "-" and self._peek().kind in (lexer.INT, lexer.FLOAT)

    def _postfix(self, node: Expr) -> Expr:
        while True:
            if self.token.kind == ".":
                dot = self._next()
                if self.token.kind == "?":
                    self._next()
                    name = self._name(dot)
                    literal = Literal(name.position, name.text)
                    node = Call(dot.position, "_?._", None, [node, literal])
                    continue
                name = self._name(dot)
                if self.token.kind == "(" and name.kind == lexer.IDENT:
                    paren = self._next()
                    node = self._call(paren, name.text, node, self._args())
                else:
                    node = Select(dot.position, node, name.text)
            elif self.token.kind == "[":
                bracket = self._next()
                optional = self.token.kind == "?"
                if optional:
                    self._next()
                else:
                    self._require_start(_STARTS_OPTIONAL)
                index = self.expr()
                self._expect("]", insert_before=frozenset({EOF, ")", "]", "}"}))
                node = Call(bracket.position, "_[?_]" if optional else "_[_]", None, [node, index])
            else:
                return node

    def _name(self, dot: Token) -> Token:
        token = self.token
        if token.kind == lexer.IDENT:
            return self._next()
        if token.kind == lexer.ESCAPED_IDENT:
            self.issues.report(token.position, "unsupported syntax: '`'")
            return self._next()
        if token.kind in ("true", "false", "null"):
            self._syntax(token, f"mismatched input '{token.text}' expecting IDENTIFIER")
        elif self.tokens[self.at - 1].kind == "?":
            self._syntax(token, f"mismatched input {self._input()} expecting {{IDENTIFIER, ESC_IDENTIFIER}}")
        else:
            text = "" if token.kind == EOF else token.text
            self._syntax(token, f"no viable alternative at input '{escape_text(dot.text + text)}'")
        raise _GiveUp

    def _args(self) -> list[Expr]:
        if self.token.kind == ")":
            self._next()
            return []
        if self.token.kind not in _STARTERS and self._peek().kind == ")" and self.token.kind != EOF:
            self._syntax(self.token, f"extraneous input {self._input()} expecting {{{_STARTS_ARGS}}}")
            self._next()
            self._next()
            return []
        self._require_start(_STARTS_ARGS)
        args = [self.expr()]
        while self.token.kind == ",":
            self._next()
            args.append(self.expr())
        self._expect(")", insert_before=frozenset({EOF, "]", "}"}))
        return args

    def _primary(self) -> Expr:
        token = self.token
        kind = token.kind
        if kind == lexer.IDENT or kind == ".":
            return self._identifier()
        if kind == "(":
            self._next()
            node = self.expr()
            self._expect(")", insert_before=frozenset({EOF, "]", "}"}))
            return node
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        return self._literal()

    def _identifier(self) -> Expr:
        start = self.token
        leading = "." if start.kind == "." else ""
        if leading:
            self._next()
            if self.token.kind != lexer.IDENT:
                text = "" if self.token.kind == EOF else self.token.text
                self._syntax(self.token, f"no viable alternative at input '{escape_text('.' + text)}'")
                raise _GiveUp
        name = self._next()
        struct = self._struct(leading + name.text)
        if struct is not None:
            return struct
        if name.text in _RESERVED:
            self.issues.report(start.position, f"reserved identifier: {name.text}")
            if self.token.kind == "(":
                self._next()
                self._args()
            return Ident(name.position, name.text)
        if self.token.kind == "(":
            paren = self._next()
            return self._call(paren, leading + name.text, None, self._args())
        return Ident(name.position, leading + name.text)

    def _struct(self, name: str) -> StructExpr | None:
        """`a.b.C{...}`, or None if the next tokens are something else."""
        at = self.at
        while self.tokens[at].kind == "." and self.tokens[at + 1].kind == lexer.IDENT:
            at += 2
        if self.tokens[at].kind != "{":
            return None
        full = name + "".join(token.text for token in self.tokens[self.at : at])
        self.at = at
        self.token = self.tokens[at]
        brace = self._next()
        fields: list[tuple[str, Expr]] = []
        while self.token.kind not in ("}", ","):
            if self.token.kind == "?":
                self._next()
            field = self._expect(lexer.IDENT)
            self._expect(":", insert_before=_STARTERS)
            fields.append((field.text, self.expr()))
            if self.token.kind != ",":
                break
            self._next()
        if self.token.kind == "," and not fields:
            self._next()
        self._expect("}", "{'}', ','}")
        return StructExpr(brace.position, full, fields)

    def _list(self) -> ListExpr:
        bracket = self._next()
        elements: list[Expr] = []
        optional: set[int] = set()
        if self.token.kind == ",":
            self._next()
            self._expect("]")
            return ListExpr(bracket.position, [])
        while self.token.kind != "]":
            if self.token.kind == "?":
                self._next()
                optional.add(len(elements))
            elif self.token.kind == ",":
                self._expect("]")
            elements.append(self.expr())
            if self.token.kind != ",":
                self._expect("]", "{']', ','}")
                return ListExpr(bracket.position, elements, frozenset(optional))
            self._next()
            if self.token.kind == EOF:
                self._expect("]", insert_before=frozenset({EOF}))
                raise _GiveUp
        self._next()
        return ListExpr(bracket.position, elements, frozenset(optional))

    def _map(self) -> MapExpr:
        brace = self._next()
        entries: list[MapEntry] = []
        if self.token.kind == ",":
            self._next()
            self._expect("}")
            return MapExpr(brace.position, [])
        while self.token.kind != "}":
            optional = self.token.kind == "?"
            if optional:
                self._next()
            key = self.expr()
            colon = self._expect(":", insert_before=_STARTERS)
            entries.append(MapEntry(colon.position, key, self.expr(), optional))
            if self.token.kind != ",":
                self._expect("}", "{'}', ','}")
                return MapExpr(brace.position, entries)
            self._next()
        self._next()
        return MapExpr(brace.position, entries)

    def _literal(self) -> Literal:
        start = self.token
        sign = ""
        if start.kind == "!":
            self._syntax(start, f"mismatched input {self._input()} expecting {{{_STARTS}}}")
            raise _GiveUp
        if start.kind == "-":
            self._next()
            if self.token.kind not in (lexer.INT, lexer.FLOAT):
                self._syntax(self.token, f"no viable alternative at input '{escape_text('-' + self.token.text)}'")
                raise _GiveUp
            sign = "-"
        token = self._next()
        return Literal(start.position, self._constant(token, sign, start.position))

    def _constant(self, token: Token, sign: str, position: int) -> Constant:
        kind, text = token.kind, token.text
        if kind in ("true", "false"):
            return kind == "true"
        if kind == "null":
            return None
        if kind == lexer.INT:
            number = _integer(sign, text)
            if not -(2**63) <= number < 2**63:
                self.issues.report(position, "invalid int literal")
                return 0
            return number
        if kind == lexer.UINT:
            number = _integer("", text[:-1])
            if number >= 2**64:
                self.issues.report(position, "invalid uint literal")
                return Uint(0)
            return Uint(number)
        if kind == lexer.FLOAT:
            value = float(sign + text)
            if value in (float("inf"), float("-inf")):
                self.issues.report(position, "invalid double literal")
            return value
        try:
            return unquote(text[1:] if kind == lexer.BYTES else text, kind == lexer.BYTES)
        except ValueError as error:
            self.issues.report(position, str(error))
            return ""

    def _call(self, paren: Token, function: str, target: Expr | None, args: list[Expr]) -> Expr:
        try:
            expanded = expand(paren.position, function, target, args)
        except MacroError as error:
            self.issues.report(error.position, error.message)
            return Literal(paren.position, None)
        return expanded if expanded is not None else Call(paren.position, function, target, args)


def _integer(sign: str, text: str) -> int:
    """The integer; any number out of range for too many digits, which Python would refuse to parse."""
    base = 16 if text.startswith("0x") else 10
    digits = text[2:] if base == 16 else text
    if len(digits.lstrip("0")) > 24:
        return 2**70
    return int(sign + digits, base)


def _balance(function: str, terms: list[Expr], ops: list[int], low: int, high: int) -> Expr:
    """A chain of one logical operator as a balanced tree, as the reference implementation builds it."""
    if not ops:
        return terms[0]
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balance(function, terms, ops, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balance(function, terms, ops, middle + 1, high)
    return Call(ops[middle], function, None, [left, right])
