"""The tests. Each folder with some is a package: ``python -m twisted.trial tests`` finds no others.

What is here holds under trial and under pytest; what only pytest needs is in ``conftest``.
"""

from hypothesis import settings

# A slow machine is no failure: speed is measured in tests/bench, never in a test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
