"""The services that run a broker and a name server on the reactor, and the checks at a start."""
