"""Java's hash codes, and the iteration order of Java's and Kafka's hash collections.

Kafka takes "the first" element of a hash map in many places: the new leader when a leader leaves, the protocol that
wins a tie, the member that gets the last partition, the order of written records. The order is deterministic, so code
that must agree with Kafka has to compute it: `hash_codes` of keys, `hash_map` (java.util.HashMap and HashSet),
`ordered` (such maps and sets as dicts and tuples), `timeline` (Kafka's TimelineHashMap).
"""
