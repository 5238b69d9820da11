"""Changes that the digest of a key selector detects, and changes that it ignores."""

from __future__ import annotations

import functools
import operator
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import pytest

from dsv2.checkpoint.fingerprint import fingerprint
from tests import ROOT

Selector: TypeAlias = Callable[[Any], Any]


class Tweet(NamedTuple):
    topic: str
    author: str


class ByField:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, record: Any) -> Any:
        return getattr(record, self.name)

    def select(self, record: Any) -> Any:
        return getattr(record, self.name)

    def upper(self, record: Any) -> Any:
        return getattr(record, self.name).upper()


class ByLowerField(ByField):
    def upper(self, record: Any) -> Any:
        return getattr(record, self.name).lower()


class ByFieldOfChild(ByField):
    """Inherits its ``__call__``."""


class ByUpperField(ByField):
    def __call__(self, record: Any) -> Any:
        return getattr(record, self.name).upper()


@dataclass(frozen=True, slots=True)
class ByPrefix:
    length: int

    def __call__(self, record: Any) -> Any:
        return record.topic[: self.length]


class Picker:
    def __init__(self, name: str) -> None:
        self.by = ByField(name)


# A class with its own repr and an inherited call.
INHERITING = """
class Base:
    def __call__(self, record): return {}
class Child(Base):
    def __repr__(self): return "Child()"
selector = Child()
"""


# A class whose call invokes another method.
CALLING = """
class Caller:
    def __call__(self, record): return self.pick(record)
    def pick(self, record): return {}
selector = Caller()
"""

# A selector that is used before the helper that it captures is assigned.
UNASSIGNED = """
def around():
    def selector(record): return helper(record)
    yield selector
    helper = str
selector = next(around())
"""

RECORD = """
from __future__ import annotations
import dataclasses, functools, typing
class Part:
    def get(self): {part}
{head}
{body}
def selector(record: Record): return record.own()
def unannotated(record): return record.own()
"""


def digest_of_record(body: str, part: str = "return 0", head: str = "@dataclasses.dataclass\nclass Record:") -> str:
    """The digest of a selector that calls a method of a class with that ``body``."""
    module = sys.modules["of_the_user"] = ModuleType("of_the_user")  # annotations are looked up here
    exec(compile(RECORD.format(head=head, body=body, part=part), "record.py", "exec"), vars(module))
    digest = fingerprint(module.selector)
    assert fingerprint(module.unannotated, module.Record) != fingerprint(module.unannotated)
    return digest


AS_TUPLE = "class Record(typing.NamedTuple):"


def module_of(**members: Any) -> ModuleType:
    module = ModuleType("helper_of_the_user")
    vars(module).update(members)
    return module


def through_module(**members: Any) -> Selector:
    return defined("def selector(record): return helper.pick(record)", helper=module_of(**members))


def through_package(**members: Any) -> Selector:
    package = module_of(helper=module_of(**members))
    return defined("def selector(record): return package.helper.pick(record)", package=package)


def defined(source: str, **names: Any) -> Selector:
    """The function ``selector`` that ``source`` defines, with ``names`` as globals of its module."""
    names = {"__name__": "of_the_user", "functools": functools, **names}
    exec(source, names)
    selector: Selector = names["selector"]
    return selector


def capturing(value: Any) -> Selector:
    return lambda record: (record.topic, value)


def helped_by(helper: Any) -> Selector:
    return defined("def selector(record): return helper(record)", helper=helper)


def lower(record: Any) -> str:
    return str(record.topic).lower()


def upper(record: Any) -> str:
    return str(record.topic).upper()


# fmt: off
SAME: dict[str, tuple[Selector, Selector]] = {
    "elsewhere in the file": (
        defined("selector = lambda record: record.topic"),
        defined("\n\n\nother = 1\nselector = lambda record: record.topic")),
    "reformatted": (
        defined("def selector(record): return (record.topic, record.author[0:1])"),
        defined("def selector(record):\n\n    return (\n        record.topic,\n        record.author[ 0 : 1 ]\n )")),
    "another name of its parameter": (
        defined("selector = lambda record: record.topic"),
        defined("selector = lambda tweet: tweet.topic")),
    "another docstring": (
        defined("def selector(record):\n    'By topic.'\n    return record.topic.get('a')"),
        defined("def selector(record):\n    'The topic.'\n    return record.topic.get('a')")),
    "annotated": (
        defined("def selector(record): return record.topic"),
        defined("def selector(record: str) -> str: return record.topic")),
    "a global of the name of an attribute": (
        defined("selector = lambda record: record.topic", topic=1),
        defined("selector = lambda record: record.topic", topic=2)),
    "another method that computes the same": (ByField("topic").select, ByField("topic").__call__),
    "an unused global": (
        defined("selector = lambda record: record.topic", names={"a": 1}),
        defined("selector = lambda record: record.topic", names={"a": 2})),
    "an unused function of an imported module": (
        through_module(pick=lower, other=lower), through_module(pick=lower, other=upper)),
    "a large table of the same length": (
        defined("selector = lambda record: table[record]", table=[0] * 20_000),
        defined("selector = lambda record: table[record]", table=[1] * 20_000)),
    "an object of the standard library": (
        defined("selector = lambda record: lock.locked(record)", lock=threading.local()),
        defined("selector = lambda record: lock.locked(record)", lock=threading.local())),
    "a helper elsewhere": (
        helped_by(defined("def selector(record): return record.topic")),
        helped_by(defined("\n\ndef selector(record): return record.topic"))),
    "another object with equal fields": (ByField("topic"), ByField("topic")),
    "another object captured, with equal fields": (capturing(Picker("topic")), capturing(Picker("topic"))),
    "another object in a tuple captured": (capturing((Picker("topic"),)), capturing((Picker("topic"),))),
    "the method of another object with equal fields": (ByField("topic").select, ByField("topic").select),
    "the method of another dict that is equal": ({"a": 1, "b": 2}.get, {"b": 2, "a": 1}.get),
    "another field getter": (operator.attrgetter("topic"), operator.attrgetter("topic")),
    "another item getter": (operator.itemgetter(0, 1), operator.itemgetter(0, 1)),
    "another partial": (functools.partial(getattr, name="a"), functools.partial(getattr, name="a")),
    "a name of an outer function that has no value yet": (
        defined(UNASSIGNED), defined(f"\n{UNASSIGNED}")),
    "a module that is missing": (
        defined("def selector(record):\n import missing_of_the_user\n return record.topic"),
        defined("def selector(record):\n\n import missing_of_the_user\n return record.topic")),
    "a recursion": (
        defined("def selector(record): return record and selector(record.parent)"),
        defined("\ndef selector(record): return record and selector(record.parent)")),
}

DIFFERENT: dict[str, tuple[Selector, Selector]] = {
    "another field": (lambda record: record.topic, lambda record: record.author),
    "another constant": (lambda record: record[0], lambda record: record[1]),
    "a constant of another type": (lambda record: record == 1, lambda record: record == 1.0),
    "another operation": (lambda record: record[0] + record[1], lambda record: record[0] - record[1]),
    "another function called": (lambda record: len(record), lambda record: hash(record)),
    "another value captured": (capturing("a"), capturing("b")),
    "another function captured": (capturing(lower), capturing(upper)),
    "another object captured": (capturing(Picker("topic")), capturing(Picker("author"))),
    "another list captured": (capturing(["a", lower]), capturing(["a", upper])),
    "another dict captured": (capturing({"a": 1}), capturing({"a": 2})),
    "another set captured": (capturing({"a", "b"}), capturing({"a", "c"})),
    "another default": (
        defined("def selector(record, name='a'): return getattr(record, name)"),
        defined("def selector(record, name='b'): return getattr(record, name)")),
    "another default of a keyword": (
        defined("def selector(record, *, name='a'): return getattr(record, name)"),
        defined("def selector(record, *, name='b'): return getattr(record, name)")),
    "another helper": (helped_by(lower), helped_by(upper)),
    "another constant of the module": (
        defined("selector = lambda record: record[at]", at=0), defined("selector = lambda record: record[at]", at=1)),
    "another helper of an inner function": (
        defined("selector = lambda record: tuple(map(lambda part: helper(part), record))", helper=lower),
        defined("selector = lambda record: tuple(map(lambda part: helper(part), record))", helper=upper)),
    "another helper of a comprehension": (
        defined("selector = lambda record: tuple(helper(part) for part in record)", helper=lower),
        defined("selector = lambda record: tuple(helper(part) for part in record)", helper=upper)),
    "another constant of an inner function": (
        lambda record: max(record, key=lambda part: part[0]), lambda record: max(record, key=lambda part: part[1])),
    "another helper of the helper": (helped_by(helped_by(lower)), helped_by(helped_by(upper))),
    "another callable object as helper": (helped_by(ByField("topic")), helped_by(ByField("author"))),
    "another item getter as helper": (helped_by(operator.itemgetter(0)), helped_by(operator.itemgetter(1))),
    "another item getter": (operator.itemgetter(0), operator.itemgetter(1)),
    "another field getter": (operator.attrgetter("topic"), operator.attrgetter("author")),
    "another method called": (operator.methodcaller("lower"), operator.methodcaller("upper")),
    "another argument of a partial": (functools.partial(getattr, Tweet), functools.partial(getattr, ByField)),
    "another keyword of a partial": (functools.partial(lower, record=1), functools.partial(lower, record=2)),
    "another function of a partial": (functools.partial(lower), functools.partial(upper)),
    "another field of a callable object": (ByField("topic"), ByField("author")),
    "another field of one that inherits its call": (ByFieldOfChild("topic"), ByFieldOfChild("author")),
    "another field of one with slots": (ByPrefix(1), ByPrefix(2)),
    "a callable object of another class": (ByField("topic"), ByFieldOfChild("topic")),
    "another call of a callable object": (ByField("topic"), ByUpperField("topic")),
    "another call inherited": (
        defined(INHERITING.format("record.topic")),
        defined(INHERITING.format("record.author"))),
    "the method of another object": (ByField("topic").select, ByField("author").select),
    "another method of the same object": (ByField("topic").select, ByField("topic").upper),
    "another dict of the module": (
        defined("selector = lambda record: names.get(record)", names={}),
        defined("selector = lambda record: names.get(record)", names={1: 2})),
    "another list of the module": (
        defined("selector = lambda record: names[record]", names=["a", ("b", "c")]),
        defined("selector = lambda record: names[record]", names=["a", ("b", "d")])),
    "another object of the module": (
        defined("selector = lambda record: picker.by(record)", picker=Picker("topic")),
        defined("selector = lambda record: picker.by(record)", picker=Picker("author"))),
    "another method of an object of the module": (
        defined("selector = lambda record: picker.upper(record)", picker=ByField("topic")),
        defined("selector = lambda record: picker.upper(record)", picker=ByLowerField("topic"))),
    "another function of an imported module": (through_module(pick=lower), through_module(pick=upper)),
    "another function that this one calls": (
        through_module(pick=defined("def selector(record): return helper(record)", helper=lower)),
        through_module(pick=defined("def selector(record): return helper(record)", helper=upper))),
    "another dict of an imported module": (through_module(pick={"a": 1}), through_module(pick={"a": 2})),
    "another function of a module in a package": (through_package(pick=lower), through_package(pick=upper)),
    "another function of a captured module": (
        capturing(module_of(topic=lower)), capturing(module_of(topic=upper))),
    "another method behind a call": (
        defined(CALLING.format("record.topic")), defined(CALLING.format("record.author"))),
    "another member of an enum": (
        defined("import enum\nclass E(enum.Enum): A = 1\nselector = lambda record: E.A.value"),
        defined("import enum\nclass E(enum.Enum): A = 2\nselector = lambda record: E.A.value")),
    "a method of a class as selector": (
        defined("class R:\n  def own(self): return self.f()\n  def f(self): return 1\nselector = R.own"),
        defined("class R:\n  def own(self): return self.f()\n  def f(self): return 2\nselector = R.own")),
    "the method of another dict": ({"a": 1}.get, {"a": 2}.get),
    "another method of a dict": ({"a": 1}.get, {"a": 1}.pop),
    "another function behind a cache": (functools.lru_cache(lower), functools.lru_cache(upper)),
    "another built-in method": (str.lower, str.upper),
    "another built-in function": (len, hash),
    "another class": (str, repr),
}

# Bodies of a record class whose method ``own`` the selector calls.
RECORDS_SAME: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "an unused method": (
        {"body": " def own(self): return self.topic\n def other(self): return 1"},
        {"body": " def own(self): return self.topic\n def other(self): return 2"}),
    "a new field": (
        {"body": " a: int\n def own(self): return self.a"},
        {"body": " a: int\n b: int = 0\n def own(self): return self.a"}),
    "fields of a named tuple that change places": (
        {"head": AS_TUPLE, "body": " a: int\n b: int\n def own(self): return self.a"},
        {"head": AS_TUPLE, "body": " b: int\n a: int\n def own(self): return self.a"}),
    "a class that refers to itself": (
        {"body": " next: Record\n def own(self): return self.next.own()"},
        {"body": " next: Record\n\n def own(self):\n  return self.next.own()"}),
}

RECORDS_DIFFERENT: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "another method": (
        {"body": " def own(self): return self.topic"}, {"body": " def own(self): return self.author"}),
    "another property": (
        {"body": " @property\n def own(self): return self.a"}, {"body": " @property\n def own(self): return self.b"}),
    "another method that the method calls": (
        {"body": " def own(self): return self.inner()\n def inner(self): return 1"},
        {"body": " def own(self): return self.inner()\n def inner(self): return 2"}),
    "another method of a field": (
        {"body": " part: Part\n def own(self): return self.part.get()", "part": "return 1"},
        {"body": " part: Part\n def own(self): return self.part.get()", "part": "return 2"}),
    "another static method": (
        {"body": " def own(self): return self.key()\n @staticmethod\n def key(): return 1"},
        {"body": " def own(self): return self.key()\n @staticmethod\n def key(): return 2"}),
    "another class method": (
        {"body": " def own(self): return self.key()\n @classmethod\n def key(cls): return 1"},
        {"body": " def own(self): return self.key()\n @classmethod\n def key(cls): return 2"}),
    "another cached property": (
        {"body": " def own(self): return self.key\n @functools.cached_property\n def key(self): return 1"},
        {"body": " def own(self): return self.key\n @functools.cached_property\n def key(self): return 2"}),
    "another operator": (
        {"body": " def own(self): return self < 1\n def __lt__(self, other): return 1"},
        {"body": " def own(self): return self < 1\n def __lt__(self, other): return 2"}),
}
# fmt: on


@pytest.mark.parametrize("change", RECORDS_SAME)
def test_digest_ignores_unrelated_changes_of_records(change: str) -> None:
    before, after = RECORDS_SAME[change]
    assert digest_of_record(**before) == digest_of_record(**after)


@pytest.mark.parametrize("change", RECORDS_DIFFERENT)
def test_digest_detects_changes_of_record_keys(change: str) -> None:
    before, after = RECORDS_DIFFERENT[change]
    assert digest_of_record(**before) != digest_of_record(**after)


@pytest.mark.parametrize("change", SAME)
def test_digest_ignores_equivalent_selectors(change: str) -> None:
    before, after = SAME[change]
    assert before is not after
    assert fingerprint(before) == fingerprint(after)


@pytest.mark.parametrize("change", DIFFERENT)
def test_digest_detects_changed_selectors(change: str) -> None:
    before, after = DIFFERENT[change]
    assert fingerprint(before) != fingerprint(after)


@pytest.mark.parametrize(
    "source",
    [
        "import package_of_the_user.helper as helper; return helper.pick(record)",
        "from package_of_the_user import helper; return helper.pick(record)",
        "from package_of_the_user.helper import pick; return pick(record)",
        "from .helper import pick; return pick(record)",
        "".join(f"record[{number}.5]; " for number in range(600)) + "from .helper import pick; return pick(record)",
    ],
    ids=["module", "module of a package", "function", "relative", "after many constants"],
)
def test_digest_detects_changes_of_an_imported_module(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(pick: Selector) -> str:
        helper = module_of(pick=pick)
        package = ModuleType("package_of_the_user")
        vars(package).update(helper=helper, __path__=[])
        monkeypatch.setitem(sys.modules, "package_of_the_user", package)
        monkeypatch.setitem(sys.modules, "package_of_the_user.helper", helper)
        return fingerprint(defined(f"def selector(record): {source}", __package__="package_of_the_user"))

    assert digest(lower) == digest(lower) != digest(upper)


def test_digest_is_short_hex() -> None:
    assert re.fullmatch("[0-9a-f]{32}", fingerprint(lower))


# Values with a different repr in every process: string hashes, hence the order of sets, and addresses.
IN_ANOTHER_PROCESS = """
import functools, operator
from dsv2.checkpoint.fingerprint import fingerprint

class Object:
    def __init__(self, value):
        self.value = value
    def __call__(self, record):
        return record

class Shown:
    def __repr__(self):
        return f"Shown of {object()}"

captured = [{"apple", "pear", "plum"}, [print, Object], Object({"a", "b", "c"}), operator, Shown()]
print(*map(fingerprint, (
    lambda record: record.topic in {"apple", "pear", "plum", "fig"},
    lambda record: (record, captured),
    (lambda value: lambda record: (record, value))(captured),
    functools.partial(getattr, Object({"x", "y", "z"})),
    {"a": 1, "b": 2}.get,
    Object(object()),
    Object(Object),
    len,
)))
"""


def test_digests_are_equal_in_every_process() -> None:
    def digests(seed: int) -> str:
        environment = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
        return subprocess.check_output([sys.executable, "-c", IN_ANOTHER_PROCESS], env=environment, text=True)

    first, *others = (digests(seed) for seed in range(1, 6))
    assert len(set(first.split())) == 8
    assert others == [first] * 4


def test_running_a_selector_keeps_its_digest() -> None:
    # Python rewrites the bytecode of functions that run often.
    assert isinstance(lower, FunctionType)
    before = fingerprint(lower)
    for _ in range(1000):
        lower(Tweet("Topic", "Author"))
    assert fingerprint(lower) == before
