"""The six namespaces of a session, and how they read the service's lists."""
