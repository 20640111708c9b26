"""The statements are written once: they use no word that only one of the databases understands."""

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from payments_async.journal import _statements
from payments_async.journal._statements import _database

FOLDER = Path(_statements.__path__[0])
SPELT = Path(_database.__file__)  # where the words are that each database spells its own way
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WITH|FROM|WHERE|VALUES|CREATE|SAVEPOINT|ROLLBACK|BEGIN)\b")

# What SQLite alone understands, or understands differently, and what to write in its place.
REFUSED = {
    r"\biif\s*\(": "CASE WHEN ... THEN ... ELSE ... END",
    r"\bINSERT OR\b|\bREPLACE INTO\b|\bUPDATE OR\b": "ON CONFLICT",
    r"\bIS (NOT )?\?": "= ?, and IS NULL where there is nothing: PostgreSQL has no IS ?",
    r"\bIS (NOT )?DISTINCT FROM\b": "= ?, and IS NULL: the oldest SQLite that we admit does not know it",
    r"\b(max|min)\s*\((?=[^()]*(\([^()]*\)[^()]*)*,)": "CASE: of two values PostgreSQL has greatest and least",
    r"\bx'": "a bound value, or NO_TRANSACTION",
    r"(?i)\b_?(rowid|oid)\b": "a column of its own",
    r"(?i)\bgroup_concat\b|\bstring_agg\b": "JOINED",
    r"\bINDEXED BY\b": "a condition that only one index fits, or a word of _database",
    r"\bAS BLOB\b|\bBYTEA\b": "AS_BYTES",
    r"\bPRAGMA\b|\bsqlite_\w+|\bWITHOUT ROWID\b|\bSTRICT\b|\bAUTOINCREMENT\b": "a method of Database",
    r"\bCREATE\b|\bALTER\b|\bDROP\b": "a method of Database: tables are the database's own",
    r"\bBEGIN \w+": "Database.begin",
    r"\b(typeof|printf|zeroblob|randomblob|hex|unhex|instr|ifnull|total|julianday|unixepoch|changes)\s*\(": "Python",
    r"\b(greatest|least|to_char|now|nextval)\s*\(|::|\$\d": "what SQLite has as well",
    r"\bCROSS JOIN\b[^()]*?\bON\b(?! CONFLICT)": "WHERE: to PostgreSQL a cross join has no condition",
    r"\bLIMIT \?, ?\?|\bLIMIT \d+, ?\d+": "LIMIT ... OFFSET",
    r"==": "=",
    r"%": "a bound value: to a driver of PostgreSQL it begins a mark",
    r'(?<![=\w])"\w+"': "single quotes: double ones are for names",
    r"\b(LIKE|GLOB|REGEXP|MATCH|ILIKE|COLLATE)\b": "=",
    r"(?s)\bSELECT DISTINCT\b.*\bORDER BY\b": "GROUP BY, or Python: PostgreSQL sorts by what is selected only",
}
LITERAL = re.compile(r"'(?:[^']|'')*'")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every SQL text of a module with its line; what is filled in is a ?, but for the words of ``_database``."""
    tree = ast.parse(source)
    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    within |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            text = node.value
        if SQL.search(text):
            yield node.lineno, text


def faults(source: str) -> list[str]:
    """What a module says that not every database understands."""
    found = []
    for line, text in texts(source):
        said = {match.group(): instead for pattern, instead in REFUSED.items() for match in re.finditer(pattern, text)}
        said |= {
            literal: "a bound value: a mark in a literal is none" for literal in LITERAL.findall(text) if "?" in literal
        }
        found += [f"{line}: {words!r}: write {instead}" for words, instead in said.items()]
    return found


@pytest.mark.slow(covered=True)
def test_every_statement_is_understood_by_every_database() -> None:
    """What one database alone knows has its place in ``_database``, and is a word there or a method."""
    modules = sorted(FOLDER.glob("*.py"))
    assert SPELT in modules
    assert 50 < len(list(chain.from_iterable(texts(module.read_text()) for module in modules)))
    found = {module.name: faults(module.read_text()) for module in modules if module != SPELT}
    assert {} == {name: those for name, those in found.items() if those}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT iif(a, 1, 2) FROM t",
        "INSERT OR IGNORE INTO t (a) VALUES (?)",
        "SELECT 1 FROM t WHERE a IS ?",
        "SELECT max(a, coalesce(b, 0)) FROM t",
        "SELECT min((SELECT b FROM u), ?) FROM t",
        "UPDATE t SET a = x'00'",
        "SELECT a FROM t ORDER BY rowid",
        "SELECT group_concat(a) FROM t",
        "SELECT CAST(a AS BLOB) FROM t",
        "CREATE TRIGGER t AFTER INSERT ON u BEGIN SELECT 1; END",
        "BEGIN IMMEDIATE",
        "SELECT greatest(a, b) FROM t",
        "SELECT 1 FROM t CROSS JOIN u ON t.a = u.a",
        "SELECT 1 FROM t WHERE a LIKE 'b%'",
        "SELECT 1 FROM t WHERE a = 'what?'",
        'SELECT 1 FROM t WHERE a = "b"',
        "SELECT DISTINCT a FROM t ORDER BY b",
    ],
)
def test_a_word_of_one_database_alone_is_refused(sql: str) -> None:
    """Also where something is filled in."""
    assert [] != faults(f"sql = {sql!r}")
    assert [] != faults(f"sql = f{f'{{a}} {sql}'!r}")


def test_what_both_databases_know_is_taken() -> None:
    """The rules find nothing where there is nothing to be found."""
    assert [] == faults(
        '''
sql = f"""INSERT INTO t (a, b) VALUES ({marks}) ON CONFLICT (a) DO UPDATE SET b = excluded.b
    WHERE t.b < excluded.b RETURNING a"""
other = "SELECT coalesce(max(a) + 1, 0), count(*) FILTER (WHERE b <> 0), CAST(? AS BIGINT) FROM t CROSS JOIN u"
last = f"SELECT {JOINED}(a, ',') FROM t WHERE b IS NULL AND c IS NOT NULL"
words = "50% of what is said here is no statement"
'''
    )
