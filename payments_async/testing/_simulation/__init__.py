"""One process, one seed: tasks, clocks, network, threads and disk of a program, each step drawn from the seed."""
