"""The tests. Each folder with some is a package: ``python -m twisted.trial tests`` finds no others.

What is here holds under trial and under pytest; what only pytest needs is in ``conftest``.
"""

from hypothesis import settings

from tests import time_limit

# A slow machine is no failure: speed is measured in tests/bench, never in a test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

time_limit.install()
