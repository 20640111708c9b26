"""One process in which everything is simulated: time, chance, network, threads, processes; one seed decides all of it."""
