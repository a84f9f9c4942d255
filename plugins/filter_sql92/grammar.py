"""The grammar of expressions, and the parser generated from it.

If an expression could end at some point and the next token cannot continue it, the rest of the text
is ignored, as in Apache's parser: ``a > 5 please`` means ``a > 5``. The rest must begin with a
valid token.

The parser is built with lark, a well-maintained parser library that is pure Python, typed and free
of dependencies. Its LALR parser needs time proportional to the length of the text and no recursion.
Importing lark and building the tables takes a tenth of a second and some MiB, so a module that
needs no expressions should not import this one.

Source: SelectorParser.jj @5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from twistmq.plugins.filter_sql92 import expression as build
from twistmq.plugins.filter_sql92.expression import ExpressionError, Operand
from twistmq.plugins.filter_sql92.values import ValueType

__all__ = ["DOUBLE_MINUSES_MAX", "TEXT_SIZE_MAX", "TOKENS_MAX", "parse"]

#: Limits of characters, and of names, literals and signs; reading one of these takes 4 us.
TEXT_SIZE_MAX: Final = 64 * 1024
TOKENS_MAX: Final = 3000
#: Limit of minus signs that directly follow a minus sign. For each of them the lexer has to read to
#: the end of the line to find out whether a comment begins.
DOUBLE_MINUSES_MAX: Final = 64

#: The rules are ordered by precedence, lowest first. Terminals that match the same text are
#: resolved by priority, so that the longest token wins, as in the original. ``_word`` turns names
#: into reserved words.
_GRAMMAR: Final = r"""
start: or_

?or_: and_ | and_ (_OR and_)+ -> either
?and_: equality | equality (_AND equality)+ -> both

?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> not_equal
    | equality _IS _NULL -> is_null
    | equality _IS _NOT _NULL -> is_not_null

?comparison: unary
    | comparison ">" unary -> greater
    | comparison ">=" unary -> greater_equal
    | comparison "<" unary -> less
    | comparison "<=" unary -> less_equal
    | comparison _CONTAINS STRING -> contains
    | comparison _NOT _CONTAINS STRING -> not_contains
    | comparison _STARTSWITH STRING -> starts
    | comparison _NOT _STARTSWITH STRING -> not_starts
    | comparison _ENDSWITH STRING -> ends
    | comparison _NOT _ENDSWITH STRING -> not_ends
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN "(" STRING ("," STRING)* ")" -> contained
    | comparison _NOT _IN "(" STRING ("," STRING)* ")" -> not_contained

?unary: primary
    | "+" unary
    | "-" unary -> negate
    | _NOT unary -> invert

?primary: STRING -> text
    | INTEGER -> integer
    | DOUBLE -> double
    | _TRUE -> true
    | _FALSE -> false
    | _NULL -> null
    | ID -> property
    | "(" or_ ")"

%declare _NOT _AND _OR _BETWEEN _IN _TRUE _FALSE _NULL _IS _CONTAINS _STARTSWITH _ENDSWITH

ID: /[A-Za-z_$][A-Za-z0-9_$]*/
DOUBLE.2: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
INTEGER.1: /0|[1-9][0-9]*[lL]?/
STRING: /'([^']|'')*'/
BLANKS: /[ \t\n\r\f]+/
LINE_COMMENT.3: /--[^\n\r]*+(\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
%ignore BLANKS
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
_WORDS: Final = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS",
                           "CONTAINS", "STARTSWITH", "ENDSWITH"))
_WORD_LENGTH_MAX: Final = max(map(len, _WORDS))


def _string(token: str) -> str:
    return token[1:-1].replace("''", "'")


def _order(sign: str) -> Callable[[Any, Operand, Operand], Operand]:
    return lambda _, left, right: build.ordered(sign, left, right)


def _search(test: Callable[[str, str], bool], expected: bool) -> Callable[..., Operand]:
    return lambda _, operand, token: build.searched(operand, _string(token), test, expected)


def _in(is_in: bool) -> Callable[..., Operand]:
    return lambda _, operand, *tokens: build.contained(operand, list(map(_string, tokens)), is_in)


@v_args(inline=True)
class _Meanings(Transformer[Token, Operand]):
    """The operands that the rules of the grammar build from their parts."""

    def start(self, operand: Operand) -> Operand:
        return build.condition(operand)

    def either(self, *operands: Operand) -> Operand:
        return build.either(operands)

    def both(self, *operands: Operand) -> Operand:
        return build.both(operands)

    def invert(self, operand: Operand) -> Operand:
        return build.invert(operand)

    def negate(self, operand: Operand) -> Operand:
        return build.negate(operand)

    def equal(self, left: Operand, right: Operand) -> Operand:
        return build.equal(left, right)

    def not_equal(self, left: Operand, right: Operand) -> Operand:
        return build.invert(build.equal(left, right))

    def is_null(self, operand: Operand) -> Operand:
        return build.is_null(operand)

    def is_not_null(self, operand: Operand) -> Operand:
        return build.invert(build.is_null(operand))

    def between(self, operand: Operand, low: Operand, high: Operand) -> Operand:
        return build.between(operand, low, high)

    def not_between(self, operand: Operand, low: Operand, high: Operand) -> Operand:
        return build.not_between(operand, low, high)

    greater, greater_equal = _order(">"), _order(">=")
    less, less_equal = _order("<"), _order("<=")
    contains, not_contains = _search(str.__contains__, True), _search(str.__contains__, False)
    starts, not_starts = _search(str.startswith, True), _search(str.startswith, False)
    ends, not_ends = _search(str.endswith, True), _search(str.endswith, False)
    contained, not_contained = _in(True), _in(False)

    def text(self, token: Token) -> Operand:
        return build.literal(ValueType.TEXT, _string(token), token)

    def integer(self, token: Token) -> Operand:
        return build.integer_literal(token)

    def double(self, token: Token) -> Operand:
        return build.double_literal(token)

    def true(self) -> Operand:
        return build.boolean_literal(True)

    def false(self) -> Operand:
        return build.boolean_literal(False)

    def null(self) -> Operand:
        return build.boolean_literal(None)

    def property(self, token: Token) -> Operand:
        return build.property_value(str(token))


def _word(token: Token) -> Token:
    """Distinguish reserved words, in upper or lower case, from names."""
    if len(token) <= _WORD_LENGTH_MAX and token.upper() in _WORDS:
        token.type = f"_{token.upper()}"
    return token


_PARSER: Final = Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Meanings(),
                      lexer_callbacks={"ID": _word})


def parse(text: str) -> Operand:
    """Parse an expression into a condition.

    :raises ExpressionError: when it is not a valid expression, or exceeds this broker's limits.
    """
    if len(text) > TEXT_SIZE_MAX:
        raise ExpressionError(f"{len(text)} characters, which is more than {TEXT_SIZE_MAX}")
    reading = _PARSER.parse_interactive(text)
    token: Token | None = None
    minus_end: int | None = None
    double_minuses = 0
    try:
        for number, token in enumerate(reading.lexer_thread.lex(reading.parser_state)):
            if number == TOKENS_MAX:
                raise ExpressionError(f"more than {TOKENS_MAX} names, literals and signs")
            if token.type == "MINUS":
                double_minuses += token.start_pos == minus_end
                if double_minuses > DOUBLE_MINUSES_MAX:
                    raise ExpressionError(f"more than {DOUBLE_MINUSES_MAX} double minuses")
                minus_end = token.end_pos
            reading.feed_token(token)
        token = None
    except UnexpectedCharacters as error:
        raise ExpressionError(
            f"{error.char!r} at {error.line}:{error.column} begins no token") from None
    except UnexpectedToken:
        # The expression may end before this token.
        pass
    try:
        operand: Operand = reading.feed_eof(token)
    except UnexpectedToken:
        where = "its end" if token is None else f"{token[:40]!r} at {token.line}:{token.column}"
        raise ExpressionError(f"{where} is not expected") from None
    return operand
