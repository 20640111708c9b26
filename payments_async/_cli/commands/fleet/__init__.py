"""The commands of a fleet: many machines on one PostgreSQL journal."""
