"""How properties are tested here."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Time says nothing on a machine that runs other tests beside these.
property_test = settings(
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
