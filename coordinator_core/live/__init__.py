"""The coordinators alive: they serve requests, run timers and write records."""
