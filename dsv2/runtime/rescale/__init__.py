"""The rules by which the state of an operator's subtasks is carried to another program.

The parallelism of the operator or of its senders may differ, or its chain, or an exchange. Keyed state, timers and
panes go to the owner of their key. Lists are redistributed as declared, broadcast state is copied, counts are summed
up. The function or its keys decide about fields that differ. Event time, and what the operator has sent, is the least
that any old subtask had. Channels of senders that are the same stay. Others start with what the old channels, combined,
imply (``dsv2.watermark.channel_rules``), and elements behind an aligned watermark stay behind it (``gates``).

The rules guarantee that no watermark advances further than it would have without the change, that what was delivered
is not forgotten, and that nothing waits once every channel has sent.
"""

from dsv2.runtime.rescale.change import InputChange, OperatorChange, Senders, changes
from dsv2.runtime.rescale.operator_states import OperatorState, owner_of, rescaled_states
from dsv2.runtime.rescale.snapshots import rescale
from dsv2.runtime.rescale.succession import ProgramSuccession
