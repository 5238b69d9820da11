"""Word count in two ways: with stateful process functions, and with plain callables (Flink ``WordCount``).

The first one emits the count so far for each word. The second one counts in a global window, which ends with the text,
so it emits one count for each distinct word. The text is Hamlet's, or that of the files of a folder (``--files``).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    OneInputStreamProcessFunction,
    PartitionedContext,
    PrintSink,
    StateDeclaration,
    StateDeclarations,
)
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.extension.window import WindowStrategy
from examples.program import Table, execute, run_example

__all__ = ("Counter", "Tokenizer", "WordCount", "count_words", "count_words_with_callables", "main", "pipeline")

# Hamlet, act 3, scene 1.
TEXT = """\
To be, or not to be,--that is the question:--
Whether 'tis nobler in the mind to suffer
The slings and arrows of outrageous fortune
Or to take arms against a sea of troubles,
And by opposing end them?--To die,--to sleep,--
No more; and by a sleep to say we end
The heartache, and the thousand natural shocks
That flesh is heir to,--'tis a consummation
Devoutly to be wish'd. To die,--to sleep;--
To sleep! perchance to dream:--ay, there's the rub;
For in that sleep of death what dreams may come,
When we have shuffled off this mortal coil,
Must give us pause: there's the respect
That makes calamity of so long life;
""".splitlines()

WORD = re.compile(r"[a-z']+")


class WordCount(NamedTuple):
    """The number of occurrences of ``word``."""

    word: str
    total: int


class Tokenizer(OneInputStreamProcessFunction[str, str]):
    """Splits lines into lower-case words."""

    def process_record(self, record: str, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        for word in WORD.findall(record.lower()):
            output.collect(word)


class Counter(OneInputStreamProcessFunction[str, WordCount]):
    """Counts the words of a stream keyed by word."""

    COUNT = StateDeclarations.value_state("count", int, default=0)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.COUNT]

    def process_record(self, record: str, output: Collector[WordCount], ctx: PartitionedContext[WordCount]) -> None:
        count = ctx.state_manager.get_state(self.COUNT)
        count.update(count.value() + 1)
        output.collect(WordCount(record, count.value()))


def count_words(lines: NonKeyedPartitionStream[str]) -> NonKeyedPartitionStream[WordCount]:
    """Emit every word with its count so far."""
    return lines.process(Tokenizer()).key_by(lambda word: word).process(Counter()).with_uid("count")


def count_words_with_callables(lines: NonKeyedPartitionStream[str]) -> NonKeyedPartitionStream[WordCount]:
    """Emit every distinct word with its count at the end of input."""

    def tokenize(line: str, output: Collector[WordCount], ctx: PartitionedContext[WordCount]) -> None:
        for word in WORD.findall(line.lower()):
            output.collect(WordCount(word, 1))

    def add(so_far: WordCount, new: WordCount) -> WordCount:
        return WordCount(so_far.word, so_far.total + new.total)

    words = lines.process(tokenize).key_by(lambda count: count.word)
    return words.window(WindowStrategy.global_()).reduce(add).with_uid("count at the end")


def pipeline(env: ExecutionEnvironment, callables: bool = False) -> None:
    """Print the counts: ``dsv2 run examples.word_count:pipeline``."""
    count = count_words_with_callables if callables else count_words
    count(env.from_collection(TEXT)).to_sink(PrintSink())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("word_count", "Counts the words of a text.", _run, arguments, _add_options)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--callables", action="store_true", help="use plain callables instead of classes")
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="count the words of the text files in this folder")


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[WordCount]()
    count = count_words_with_callables if options.callables else count_words
    folder = options.files
    count(env.from_source(FilesSource(folder, text_lines(str))) if folder else env.from_collection(TEXT)).to_sink(sink)
    execute(env, "word count", options)
    last = {word: max(c.total for c in sink.results if c.word == word) for word in {c.word for c in sink.results}}
    rows = sorted(last.items(), key=lambda item: (-item[1], item[0]))
    return Table(f"{len(sink.results)} results for {len(rows)} words", ("word", "count"), rows[:20])


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import word_count

    sys.exit(word_count.main())
