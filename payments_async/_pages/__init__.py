"""Pages for people: HTML that needs nothing else, made of the templates beside this file."""
