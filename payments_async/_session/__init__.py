"""The session, and what it is made of: transport, login, retry, limits, executor and books."""
