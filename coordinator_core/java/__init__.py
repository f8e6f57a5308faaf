"""Java's hash codes, and the order in which Java's and Kafka's hash collections give out their elements.

Kafka takes "the first" of a hash map in many places: who leads when a leader goes away, which protocol wins a tie, who
gets the last partition, in which order records are written. The order is no accident, so whoever is to agree with Kafka
computes it: `hash_codes` of keys, `hash_map` (java.util.HashMap and HashSet), `ordered` (such maps and sets as dicts
and tuples), `timeline` (Kafka's TimelineHashMap).
"""
