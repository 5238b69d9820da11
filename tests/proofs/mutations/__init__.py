"""Faults for the code: each is a mistake that somebody could make, and that the explorer must find."""

from tests.proofs.mutations.mutation import Mutation
from tests.proofs.mutations.of_barriers import BARRIERS
from tests.proofs.mutations.of_event_time import EVENT_TIMES
from tests.proofs.mutations.of_expiry import EXPIRY
from tests.proofs.mutations.of_functions import FUNCTIONS
from tests.proofs.mutations.of_gates import GATES
from tests.proofs.mutations.of_keys import KEYS
from tests.proofs.mutations.of_operators import OPERATORS

__all__ = ("MUTATIONS", "Mutation")

MUTATIONS = [*GATES, *OPERATORS, *EVENT_TIMES, *BARRIERS, *EXPIRY, *FUNCTIONS, *KEYS]
