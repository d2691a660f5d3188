"""The query of a list, parsed: filters, order, page, projection. Pure, and bounded in length, depth and number.

`filter=a.b=x` may be repeated (all must hold) and have alternatives after commas (one must hold). Operators are `=`, `!=`, `~`
and `!~` (contains, without regard to case), `<`, `>`, `IN (x,y)`, `NOTIN (x,y)`; a field alone must be there, `!field` must not.
Fields are paths such as `spec.displayName`, `status.conditions[0].type` and `metadata.labels[example.com/name]`. `sort=-a.b,c`
sorts by one field after the other, `-` in descending order. :mod:`.collections` applies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qsl

from remuda.kube.errors import bad_request

Step = str | int
Path = tuple[Step, ...]

LONGEST = 12 << 10
MOST_PARAMETERS = 128
MOST_TERMS = 128
MOST_VALUES = 1024
DEEPEST = 16
MOST_SORT_KEYS = 8
LARGEST_PAGE = 100_000
_LONGEST_VALUE = 1024

# A step of a path: a name, or something in brackets.
_STEP = re.compile(r"""\.?(?:(?P<name>[A-Za-z0-9_$/-]+)|\[(?P<quote>["']?)(?P<key>[^\[\]"']*)(?P=quote)\])""")
_OPERATOR = re.compile(r"\s*(?:(?P<sign>!=|!~|==|=|~|<|>)|(?P<word>NOTIN|NOT IN|IN)\s*\()\s*", re.IGNORECASE)


class Operator(Enum):
    EQUALS = "="
    DIFFERS = "!="
    CONTAINS = "~"
    LACKS = "!~"
    LESS = "<"
    MORE = ">"
    AMONG = "IN"
    NOT_AMONG = "NOTIN"
    EXISTS = "exists"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Term:
    path: Path
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SortKey:
    path: Path
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """`filters` must all hold, of each one alternative. `page_size` 0 is for all in one page."""

    filters: tuple[tuple[Term, ...], ...] = ()
    sort: tuple[SortKey, ...] = ()
    page: int = 1
    page_size: int = 0
    scopes: tuple[str, ...] = ()
    outside_scopes: tuple[str, ...] = ()
    exclude: tuple[Path, ...] = ()
    include: tuple[Path, ...] = ()
    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_: str = ""
    revision: int = 0
    link: str = ""
    action: str = ""
    dry_run: bool = False

    @property
    def terms(self) -> int:
        """The number of comparisons for each object: many values of one field are one."""
        return sum(map(len, self.filters))

    @property
    def is_plain(self) -> bool:
        """True for a list in the API's own order, which it can page by itself."""
        return not (self.filters or self.sort or self.page_size or self.scopes or self.outside_scopes)


def parse(text: str) -> Query:
    """The query of a URL. Raises ApiError (400) that names the parameter."""
    if len(text) > LONGEST:
        raise bad_request(f"the query has more than {LONGEST} characters")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise bad_request(f"the query has more than {MOST_PARAMETERS} parameters") from None
    filters = tuple(_alternatives(value) for name, value in pairs if name == "filter" and value.strip())
    # `projectsornamespaces!=a` is read as a parameter whose name ends in "!".
    scopes = _words(pairs, "projectsornamespaces")
    outside = _words(pairs, "projectsornamespaces!")
    query = Query(
        filters=filters,
        sort=_sort(_last(pairs, "sort")),
        page=max(_number(pairs, "page"), 1),
        page_size=min(_number(pairs, "pagesize"), LARGEST_PAGE),
        scopes=scopes,
        outside_scopes=outside,
        exclude=_paths(pairs, "exclude"),
        include=_paths(pairs, "include"),
        labels=_last(pairs, "labelSelector"),
        fields=_last(pairs, "fieldSelector"),
        limit=_number(pairs, "limit"),
        continue_=_last(pairs, "continue"),
        revision=_number(pairs, "revision"),
        link=_last(pairs, "link"),
        action=_last(pairs, "action"),
        dry_run=_last(pairs, "dryRun") == "All",
    )
    if query.terms > MOST_TERMS or sum(len(term.values) for each in filters for term in each) > MOST_VALUES:
        raise bad_request(f"filter: more than {MOST_TERMS} comparisons or {MOST_VALUES} values")
    return query


def _last(pairs: Iterable[tuple[str, str]], name: str) -> str:
    found = [value for key, value in pairs if key == name]
    return found[-1] if found else ""


def _number(pairs: Iterable[tuple[str, str]], name: str) -> int:
    text = _last(pairs, name)
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise bad_request(f"{name}: must be a whole number")
    return int(text)


def _words(pairs: Iterable[tuple[str, str]], name: str) -> tuple[str, ...]:
    found = [word.strip() for key, value in pairs if key == name for word in value.split(",")]
    if len(found) > MOST_VALUES:
        raise bad_request(f"{name}: more than {MOST_VALUES} names")
    return tuple(word for word in found if word)


def _paths(pairs: Iterable[tuple[str, str]], name: str) -> tuple[Path, ...]:
    found = [value for key, value in pairs if key == name and value]
    if len(found) > MOST_TERMS:
        raise bad_request(f"{name}: more than {MOST_TERMS} fields")
    return tuple(path_of(value, name) for value in found)


def path_of(text: str, parameter: str) -> Path:
    """The steps of a field's path: names, keys in brackets, and numbers for elements of lists."""
    steps: list[Step] = []
    at, text = 0, text.strip()
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or len(steps) >= DEEPEST:
            raise bad_request(f"{parameter}: a field is a path of at most {DEEPEST} steps, such as metadata.labels[name]")
        name, key = step["name"], step["key"]
        if name is not None:
            steps.append(name)
        else:
            steps.append(int(key) if not step["quote"] and key.isascii() and key.isdigit() and len(key) < 6 else key)
        at = step.end()
    if not steps:
        raise bad_request(f"{parameter}: a field is missing")
    return tuple(steps)


def _sort(text: str) -> tuple[SortKey, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > MOST_SORT_KEYS:
        raise bad_request(f"sort: more than {MOST_SORT_KEYS} fields")
    return tuple(SortKey(path_of(word.removeprefix("-"), "sort"), word.startswith("-")) for word in words)


# --- filters --------------------------------------------------------------------------------------------------------------


def _alternatives(text: str) -> tuple[Term, ...]:
    """The terms of one filter; values that one field may equal are joined to one term."""
    equal: dict[Path, list[str]] = {}
    others: list[Term] = []
    for part in _split(text):
        term = _term(part)
        if term.operator in (Operator.EQUALS, Operator.AMONG):
            equal.setdefault(term.path, []).extend(term.values)
        else:
            others.append(term)
    return (*(Term(path, Operator.AMONG, tuple(values)) for path, values in equal.items()), *others)


def _split(text: str) -> Sequence[str]:
    """The parts between commas that are not in quotes, parentheses or brackets."""
    parts: list[str] = []
    depth, start, quote = 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _term(text: str) -> Term:
    if text.startswith("!"):
        return Term(path_of(text[1:], "filter"), Operator.MISSING)
    end = _end_of_field(text)
    path, rest = path_of(text[:end], "filter"), text[end:]
    if not rest.strip():
        return Term(path, Operator.EXISTS)
    operator = _OPERATOR.match(rest)
    if operator is None:
        raise bad_request("filter: the operator must be =, !=, ~, !~, <, >, IN or NOTIN")
    value = rest[operator.end() :]
    if word := operator["word"]:
        if not value.rstrip().endswith(")"):
            raise bad_request("filter: the list of values must end with )")
        values = tuple(_value(each) for each in _split(value.rstrip()[:-1]))
        return Term(path, Operator.AMONG if word.upper() == "IN" else Operator.NOT_AMONG, values)
    return Term(path, Operator("=" if operator["sign"] == "==" else operator["sign"]), (_value(value),))


def _end_of_field(text: str) -> int:
    """The position of the operator: the first sign or space that is not in brackets."""
    inside = False
    for at, char in enumerate(text):
        if char in "[]":
            inside = char == "["
        elif not inside and char in "=!~<> \t":
            return at
    return len(text)


def _value(text: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST_VALUE:
        raise bad_request(f"filter: a value has more than {_LONGEST_VALUE} characters")
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text
