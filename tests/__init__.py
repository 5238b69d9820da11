"""The tests, and the folder of the project, which contains them."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
