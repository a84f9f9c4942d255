"""The remoting client that talks to name servers and brokers."""
