"""The tests. Each folder with some is a package: ``python -m twisted.trial tests`` finds no others.

What is here holds under trial and under pytest; what only pytest needs is in ``conftest``.
"""

from hypothesis import settings

from tests import time_limit
from tests.draw import examples

# A slow machine is not a failure: speed is measured in tests/bench, never in a test. A whole run
# has the 100 examples of each property that are hypothesis's own choice.
settings.register_profile("twistmq", deadline=None, max_examples=examples(100))
settings.load_profile("twistmq")

time_limit.install()
