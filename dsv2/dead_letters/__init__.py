"""Dead letters in files: those of jobs in which nothing reads them."""

from dsv2.dead_letters.letter import StoredLetter
from dsv2.dead_letters.letters import DeadLetters, LetterStatus

__all__ = ("DeadLetters", "LetterStatus", "StoredLetter")
