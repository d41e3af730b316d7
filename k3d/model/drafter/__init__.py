"""Drafters: small models that guess the next tokens from the model's own hidden rows.

What they guess never changes what is written, only how many passes it takes: the model checks
every draft. So they compute in plain float32 and promise no more than to be deterministic.
"""

from k3d.model.drafter.proposal import Drafter, Proposal
from k3d.model.drafter.reader import load_drafter

__all__ = ["Drafter", "Proposal", "load_drafter"]
