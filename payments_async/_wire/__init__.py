"""The service's JSON, both ways. Pure: nothing here waits, sleeps or opens a socket."""
